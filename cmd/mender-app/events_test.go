package main

import (
	"bufio"
	"encoding/json"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/modules/view"
)

// -f prints each event of an installation once, in its order, and Ctrl-C ends it well.
func TestEventsFollow(t *testing.T) {
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web"}}
	require.NoError(t, a.Write(d.Dir+"/v1.mender"))
	cmd := d.Command("mender-app", "events", "-f")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, stderr, err := d.Run(nil, "mender-app", "install", "--commit", "v1.mender")
	require.NoError(t, err, stderr)
	var phases []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e view.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		if e.Event == view.Ended {
			require.Equal(t, "installed", e.Status)
			break
		}
		phases = append(phases, e.Phase)
	}
	require.Equal(t, []string{"downloading", "loaded", "installing", "installed", "committed", "cleaning"}, phases)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait())
}
