package bed

import (
	"testing"
)

func TestDevice(t *testing.T) {
	d := Start(t)
	t.Log(d.MustRun(t, "docker", "info", "--format", "{{.ServerVersion}} {{.Driver}} {{.DockerRootDir}}"))
	t.Log(d.MustRun(t, "bash", "-c", "ls -la / /etc/mender /usr/share/mender /data; mender --no-syslog show-artifact; ip addr; df /data /var/lib/docker /tmp /; mount | wc -l"))
}
