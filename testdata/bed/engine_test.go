package bed

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every chosen engine runs a container and is what its name says.
func TestEngines(t *testing.T) {
	web, err := Shop{Ref: "shop/web:1", Version: "1"}.Image()
	require.NoError(t, err)
	for _, e := range ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			d := StartWith(t, e)
			version := strings.TrimSpace(d.MustRun(t, "docker", "version", "--format", "{{.Server.Version}}"))
			info := d.MustRun(t, "docker", "info", "--format", "{{.Driver}} {{.DriverStatus}}")
			t.Logf("engine %s: %s, %s", e, version, info)
			if e.Suite != "" {
				number, _, _ := strings.Cut(e.Name, "-")
				require.True(t, strings.HasPrefix(version, number+"."), version)
			}
			require.Equal(t, e.Containerd, strings.Contains(info, "io.containerd.snapshotter"))
			require.NoError(t, WriteArchive(d.Share("web.tar"), web))
			d.MustRun(t, "docker", "load", "-q", "-i", d.Share("web.tar"))
			d.MustRun(t, "docker", "run", "-d", "--name", "web", "--cgroup-parent", "/"+d.Cgroup, "shop/web:1")
			require.Equal(t, "well", strings.TrimSpace(d.MustRun(t, "docker", "-H", d.Host(), "exec", "web", "/bin/shop", "-probe")), "the socket outside")
		})
	}
}
