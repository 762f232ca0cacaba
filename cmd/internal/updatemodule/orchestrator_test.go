package updatemodule

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Components have different identities, which stay the same and do not tell the
// machine's ID.
func TestIdentity(t *testing.T) {
	was := machineID
	t.Cleanup(func() { machineID = was })
	identify := func(machine, typ, app string) string {
		machineID = filepath.Join(t.TempDir(), "machine-id")
		require.NoError(t, os.WriteFile(machineID, []byte(machine+"\n"), 0o644))
		var out bytes.Buffer
		require.NoError(t, component{typ, app}.identify(&out))
		require.NotContains(t, out.String(), machine)
		return out.String()
	}
	one := identify("0123456789abcdef", "container", "shop")
	require.Regexp(t, `^id=container-[0-9a-f]{16}\n$`, one)
	require.Equal(t, one, identify("0123456789abcdef", "container", "shop"))
	require.NotEqual(t, one, identify("0123456789abcdef", "container", "other"))
	require.NotEqual(t, one, identify("1123456789abcdef", "container", "shop"))

	machineID = filepath.Join(t.TempDir(), "missing")
	require.ErrorContains(t, component{"container", "shop"}.identify(&bytes.Buffer{}), "the component's identity")
}
