package daily

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/e2e"
)

// The services that a policy names, and those with the label, run on the processors that
// the device reserves, and no other. Without the setting nothing changes, and check and
// doctor say so.
func TestCPUSet(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	file := filepath.Join(t.TempDir(), "app.toml")
	require.NoError(t, os.WriteFile(file, []byte("[resources]\ncpuset = ['stock']\n"), 0o644))
	text := `services:
  stock:
    image: shop/stock:1
    stop_grace_period: 1s
  marked:
    image: shop/stock:1
    stop_grace_period: 1s
    labels: {mender-app.cpuset: reserved}
  other:
    image: shop/stock:1
    stop_grace_period: 1s
`
	artifact := e2e.Generate(t, d, "shop", "shop-1", "1", text, "--policy", file, e2e.Archive(t, e2e.Stock(t)))
	cpus := func(service string) string {
		t.Helper()
		return strings.TrimSpace(d.MustRun(t, "docker", "inspect", "--format", "{{.HostConfig.CpusetCpus}}", "shop-"+service+"-1"))
	}
	all := func() []string { t.Helper(); return []string{cpus("stock"), cpus("marked"), cpus("other")} }

	const says = "no processors are reserved on this device, so stock may run on any"
	require.Contains(t, d.MustRun(t, "sh", "-c", "mender-app check --unsigned "+artifact+" 2>&1"), says)
	d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", artifact)
	require.Equal(t, []string{"", "", ""}, all())
	r, err := d.Run("mender-app", "doctor")
	require.NoError(t, err)
	require.Contains(t, r.Output(), says)

	other := d.MustRun(t, "docker", "inspect", "--format", "{{.Id}}", "shop-other-1")
	d.MustRun(t, "sh", "-c", "echo 'application_cpuset=0' >>/etc/mender/mender-app.conf")
	d.MustRun(t, "mender-app", "start", "shop")
	require.Equal(t, []string{"0", "0", ""}, all())
	require.Equal(t, other, d.MustRun(t, "docker", "inspect", "--format", "{{.Id}}", "shop-other-1"), "it was not touched")
	r, err = d.Run("mender-app", "doctor")
	require.NoError(t, err)
	require.NotContains(t, r.Output(), says)

	const absent = "application_cpuset = 4000: this machine has the processors "
	d.MustRun(t, "sh", "-c", "sed -i 's/^application_cpuset=.*/application_cpuset=4000/' /etc/mender/mender-app.conf")
	r, err = d.Run("mender-app", "start", "shop")
	require.NoError(t, err)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Output(), absent)
	require.Equal(t, []string{"0", "0", ""}, all(), "nothing was touched")
	r, err = d.Run("mender-app", "doctor")
	require.NoError(t, err)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Output(), absent)

	d.MustRun(t, "sh", "-c", "sed -i 's/^application_cpuset=.*/application_cpuset=1-0/' /etc/mender/mender-app.conf")
	r, err = d.Run("mender-app", "status")
	require.NoError(t, err)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Output(), `application_cpuset: "1-0" is not a list of processors`)
}
