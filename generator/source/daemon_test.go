package source

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
)

// engine runs a Docker daemon of its own until the test ends and returns its
// address.
func engine(t *testing.T, config string) string {
	t.Helper()
	need(t, "dockerd")
	need(t, "docker")
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: root")
		}
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "engine") // a socket's name must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "daemon.json"), []byte(config), 0o600))
	host := "unix://" + dir + "/docker.sock"
	cmd := exec.Command("dockerd", "--config-file", dir+"/daemon.json", "--data-root", dir+"/root", "--exec-root", dir+"/exec",
		"--pidfile", dir+"/pid", "-H", host, "--bridge", "none", "--iptables=false", "--ip6tables=false")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	require.Eventually(t, func() bool {
		return exec.Command("docker", "-H", host, "version").Run() == nil
	}, time.Minute, 200*time.Millisecond, "the engine does not start")
	return host
}

func TestDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Docker engine: not with -short")
	}
	for name, config := range map[string]string{"classic": "{}", "containerd": `{"features":{"containerd-snapshotter":true}}`} {
		t.Run(name, func(t *testing.T) { testDaemon(t, engine(t, config)) })
	}
}

func testDaemon(t *testing.T, host string) {
	web := gentest.Image(t, "linux/amd64", gentest.Files{"a": "1"}, gentest.Files{"b": gentest.Text("b", 1<<16)})
	archive := gentest.DockerArchive(t, filepath.Join(t.TempDir(), "web.tar"), map[string]v1.Image{"web:1": web})
	out, err := exec.Command("docker", "-H", host, "load", "-q", "-i", archive).CombinedOutput()
	require.NoError(t, err, "%s", out)

	o := opener(t, "linux/amd64")
	t.Setenv("DOCKER_HOST", host)
	f, err := open(t, o, "docker-daemon:web:1")
	require.NoError(t, err)
	require.Equal(t, "web:1", f.URL)
	require.Equal(t, gentest.Digest(t, web), f.Image.ConfigDigest.String())
	content(t, f)

	out, err = exec.Command("docker", "-H", host, "image", "inspect", "-f", "{{.Id}}", "web:1").Output()
	require.NoError(t, err)
	id := strings.TrimPrefix(strings.TrimSpace(string(out)), "sha256:")[:12]
	f, err = open(t, o, "docker-daemon:"+id)
	require.NoError(t, err)
	require.Equal(t, "web:1", f.URL, "the name the engine has for it")

	_, err = open(t, o, "docker-daemon:none:1")
	require.EqualError(t, err, "the Docker daemon has no none:1")
	_, err = open(t, opener2(t, "linux/arm/v7"), "docker-daemon:web:1")
	require.ErrorContains(t, err, "no image for platform linux/arm/v7; there is linux/amd64")

	// If the registry does not have a reference, the daemon is asked, so that the
	// error can say that it has it.
	_, err = open(t, o, "127.0.0.1:1/web:1")
	require.ErrorContains(t, err, "connection refused")
	out, err = exec.Command("docker", "-H", host, "tag", "web:1", "127.0.0.1:1/web:1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, err = open(t, o, "127.0.0.1:1/web:1")
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "the Docker daemon here has it: use docker-daemon:127.0.0.1:1/web:1", e.Hint)
}

// opener2 is another opener with the same settings.
func opener2(t *testing.T, platform string) *Opener {
	t.Helper()
	host := os.Getenv("DOCKER_HOST")
	n := opener(t, platform)
	t.Setenv("DOCKER_HOST", host)
	return n
}
