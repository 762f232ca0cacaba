package cmd

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNotices: the licences that are installed with the programs are those of what is linked
// into them, and the choice that a licence leaves is made.
func TestNotices(t *testing.T) {
	touchSources(t)
	cmd := exec.Command("go", "run", "./packaging/notices")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	now, err := cmd.Output()
	require.NoError(t, err)
	kept, err := os.ReadFile("../packaging/THIRD-PARTY-NOTICES")
	require.NoError(t, err)
	require.True(t, string(now) == string(kept), "packaging/THIRD-PARTY-NOTICES is out of date: make notices writes it")
	text := strings.Join(strings.Fields(string(now)), " ")
	for _, says := range []string{"Go standard library", "libcap/psx", "BSD 3-clause", "Apache License", "The MIT License"} {
		require.True(t, strings.Contains(text, says), says)
	}
}
