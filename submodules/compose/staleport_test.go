package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRestartCommand(t *testing.T) {
	const own = "unix:///var/run/docker.sock"
	systemctl, script := []string{"systemctl", "restart", "docker"}, []string{"/etc/init.d/docker", "restart"}
	for _, c := range []struct {
		name  string
		set   []string
		host  string
		files []string
		want  []string
	}{
		{"systemd", nil, own, []string{systemdRuns, initScript}, systemctl},
		{"the other path of the socket", nil, "unix:///run/docker.sock", []string{systemdRuns}, systemctl},
		{"an init script", nil, own, []string{initScript}, script},
		{"nothing that restarts services", nil, own, nil, nil},
		{"a remote engine", nil, "tcp://10.0.0.7:2375", []string{systemdRuns}, nil},
		{"a user's engine", nil, "unix:///run/user/1000/docker.sock", []string{systemdRuns}, nil},
		{"the operator's command", []string{"rc-service", "docker", "restart"}, "tcp://10.0.0.7:2375", []string{systemdRuns}, []string{"rc-service", "docker", "restart"}},
		{"the operator restarts it", []string{"none"}, own, []string{systemdRuns}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			exists := func(path string) bool {
				for _, f := range c.files {
					if f == path {
						return true
					}
				}
				return false
			}
			require.Equal(t, c.want, restartCommand(c.set, c.host, exists))
		})
	}
}

func TestHeldPort(t *testing.T) {
	for _, c := range []struct{ said, port string }{
		{"Error response from daemon: driver failed programming external connectivity on endpoint shop-web-1 (33b1): Bind for 0.0.0.0:8080 failed: port is already allocated", "8080"},
		{"Bind for :::443 failed: port is already allocated", "443"},
		{"Error starting userland proxy: listen tcp4 0.0.0.0:8080: bind: address already in use", ""},
		{"no space left on device", ""},
	} {
		port := ""
		if m := heldPort.FindStringSubmatch(c.said); m != nil {
			port = m[1]
		}
		require.Equal(t, c.port, port, c.said)
	}
}
