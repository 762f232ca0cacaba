package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader that has seen enough is not an error. An output that cannot be written is one.
func TestReaderThatIsGone(t *testing.T) {
	d := installed(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, args := range []string{"list", "history shop", "history shop --json", "show shop", "releases shop", "logs shop --deployment 1", "events", "version"} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		cmd := d.Command("mender-app", strings.Fields(args)...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = w, &said
		err = cmd.Run()
		require.NoError(t, w.Close())
		require.NoError(t, err, args)
		require.Empty(t, said.String(), args)

		cmd = d.Command("mender-app", strings.Fields(args)...)
		cmd.Stdout = full
		require.Error(t, cmd.Run(), args)
	}
}
