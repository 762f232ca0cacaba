package sdjournal

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

func service(string) string { return "8:1" }

// listen is a journal that takes entries.
func listen(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	return c
}

// An entry has its fields as the journal's protocol has them.
func TestEntries(t *testing.T) {
	c := listen(t)
	tell := Teller(c.LocalAddr().String(), service)
	entry := func(e journal.Notice) string {
		t.Helper()
		tell(e)
		text := make([]byte, 64<<10)
		n, err := c.Read(text)
		require.NoError(t, err)
		return string(text[:n])
	}
	shop := journal.Notice{App: "shop", Number: 3, Artifact: "shop-2", Release: "2-shop-2", Phase: "installing"}
	require.Equal(t, `MESSAGE=shop: shop-2 is installing
MESSAGE_ID=`+IDPhase+`
PRIORITY=6
SYSLOG_IDENTIFIER=mender-app
MENDER_APP_APPLICATION=shop
MENDER_APP_ARTIFACT=shop-2
MENDER_APP_RELEASE=2-shop-2
MENDER_APP_STEP=installing
MENDER_APP_DEPLOYMENT=3
`, entry(shop))
	shop.Phase, shop.Status = "", store.StatusInstalled
	require.Contains(t, entry(shop), "MESSAGE=shop: shop-2 is installed\nMESSAGE_ID="+IDDone+"\nPRIORITY=5\n")
	shop.Status, shop.Error = store.StatusRolledBack, "a\nMESSAGE_ID=forged"
	got := entry(shop)
	require.Contains(t, got, "\nMESSAGE_ID="+IDFailed+"\nPRIORITY=3\n")
	require.Contains(t, got, "MENDER_APP_ERROR\n\x13\x00\x00\x00\x00\x00\x00\x00a\nMESSAGE_ID=forged\n", "the length says where it ends")
	shop.Error = strings.Repeat("x", 1<<20)
	require.Less(t, len(entry(shop)), 3*maxField)
}

// Without a journal, or with one that takes nothing, an update is not held up.
func TestNoJournal(t *testing.T) {
	require.Nil(t, Teller(Socket, func(string) string { return "" }))
	Teller("/none", service)(journal.Notice{App: "shop"})
	c := listen(t)
	tell := Teller(c.LocalAddr().String(), service)
	start := time.Now()
	for range 20 { // more than the kernel keeps for a socket; the rest is dropped
		tell(journal.Notice{App: "shop"})
	}
	require.Less(t, time.Since(start), 20*(patience+time.Second))
}

// The catalogue explains each entry, and systemd reads it.
func TestCatalogue(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/systemd/mender-app.catalog")
	require.NoError(t, err)
	for _, id := range []string{IDPhase, IDDone, IDFailed} {
		require.Contains(t, string(text), "\n-- "+id+"\n")
	}
	require.Equal(t, 3, strings.Count(string(text), "\n-- "))
	program, err := exec.LookPath("journalctl")
	if err != nil {
		t.Skip("needs journalctl (Debian's package systemd)")
	}
	root := t.TempDir()
	for dir, file := range map[string]string{"usr/lib/systemd/catalog": "mender-app.catalog", "var/lib/systemd/catalog": ""} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		if file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(root, dir, file), text, 0o644))
		}
	}
	out, err := exec.Command(program, "--root="+root, "--update-catalog").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(program, "--root="+root, "--dump-catalog", IDFailed).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "has failed")
}
