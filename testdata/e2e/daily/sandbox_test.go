package daily

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// loadStatus starts a LOAD and sends it the beginning of an archive, more than the
// pipe holds: once that is written, the LOAD is reading. Then it prints the kernel's
// status of each of its threads.
const loadStatus = `
mkfifo /tmp/content
head -c 1000000 /dev/zero >/tmp/layer.tar
"$1" LOAD shop "$2" - </tmp/content 2>/tmp/said &
pid=$!
exec 3>/tmp/content
tar -cf - -C /tmp layer.tar 2>/dev/null | head -c 70000 >&3 || true
grep -hE '^(NoNewPrivs|Seccomp):' /proc/$pid/task/*/status
grep -E '^Max (data|core) ' /proc/$pid/limits
exec 3>&-
wait $pid || true
cat /tmp/said
rm -f /tmp/content /tmp/layer.tar /tmp/said
`

// The process that reads an unverified image has given up its rights before it
// reads, in all its threads, unless the operator switched that off.
func TestLoadIsConfined(t *testing.T) {
	if err := unix.Prctl(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		t.Skipf("the kernel has no seccomp: %v", err)
	}
	d := e2e.Device(t)
	said := d.MustRun(t, "bash", "-ec", loadStatus, "load", e2e.ComposeSubmodule, "shop.example/web:1")
	require.Contains(t, said, "Seccomp:\t2")
	require.NotContains(t, said, "Seccomp:\t0")
	require.NotContains(t, said, "NoNewPrivs:\t0")
	require.Regexp(t, `Max data size +268435456 `, said)
	require.Regexp(t, `Max core file size +0 `, said)
	require.Contains(t, said, "error: load image")
	require.NotContains(t, said, "warning")

	conf := "/etc/mender/mender-app-docker-compose.conf"
	d.MustRun(t, "bash", "-ec", "echo SANDBOX=no >>"+conf)
	said = d.MustRun(t, "bash", "-ec", loadStatus, "load", e2e.ComposeSubmodule, "shop.example/web:1")
	require.NotContains(t, said, "Seccomp:\t2")
	require.NotContains(t, said, "NoNewPrivs:\t1")
	require.Contains(t, said, "error: load image")
}
