package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
)

// A disk may fill up at any byte of app-gen's work: temporary files, the output and what is
// kept for the next run. Whatever is written just then, app-gen exits with 7, says what to do
// and leaves no file; a full cache is not a reason to fail.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	files := func(version string) gentest.Files {
		return gentest.Files{"program": gentest.Text("program "+version, 300_000), "data": gentest.Text("data", 600_000)}
	}
	for _, v := range []string{"1", "2"} {
		gentest.DockerArchive(t, at("web"+v+".tar"), map[string]v1.Image{"shop/web:" + v: gentest.Image(t, "linux/amd64", files(v))})
		require.NoError(t, os.MkdirAll(at("shop"+v), 0o755))
		require.NoError(t, os.WriteFile(at("shop"+v+"/compose.yaml"), []byte("services: {web: {image: \"shop/web:"+v+"\"}}\n"), 0o644))
	}
	pushed := gentest.Registry(t, "", "") + "/shop/web:1"
	gentest.Push(t, pushed, gentest.Image(t, "linux/amd64", files("1")), "", "")
	generate := []string{"-a", "shop", "-t", "box", "-p", "linux/amd64", "--orchestrator", "docker-compose"}
	first := append(generate, "-n", "shop-1", "-m", "shop1")
	// run calls app-gen on a machine where the directory full has so many KiB.
	run := func(kib int, args ...string) (int, string) {
		require.NoError(t, os.MkdirAll(at("full"), 0o755))
		script := fmt.Sprintf(`mount -t tmpfs -o size=%dk none full && "$@"; code=$?; ls -A full >left; umount full; exit $code`, kib)
		c := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, "sh", "app-gen"}, args...)...)
		c.Dir, c.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+at("cache"))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), string(out)
		}
		require.NoError(t, err)
		return 0, string(out)
	}
	code, said := run(64, append(first, "--image", "docker-archive:web1.tar", "--output-path", "base.mender")...)
	require.Zero(t, code, said)
	second := append(generate, "-n", "shop-2", "-m", "shop2", "--base", "base.mender", "--image", "docker-archive:web2.tar")
	for name, args := range map[string][]string{
		"archive":      append(first, "--image", "docker-archive:web1.tar", "--output-path", "out.mender", "--temp-dir", "full"),
		"in gzip":      append(first, "--image", "docker-archive:web1.tar", "--output-path", "out.mender", "--temp-dir", "full", "--fast"),
		"registry":     append(first, "--image", pushed+"=shop/web:1", "--output-path", "out.mender", "--temp-dir", "full"),
		"delta":        append(second, "--output-path", "out.mender", "--temp-dir", "full"),
		"output":       append(first, "--image", "docker-archive:web1.tar", "--output-path", "full/out.mender"),
		"delta encode": {"delta", "encode", "web1.tar", "web2.tar", "-o", "out.mender", "--temp-dir", "full"},
	} {
		t.Run(name, func(t *testing.T) {
			kib, failed := 16, 0
			for ; ; kib = kib * 3 / 2 {
				require.NoError(t, os.RemoveAll(at("cache")))
				code, said := run(kib, args...)
				if code == 0 {
					break
				}
				failed++
				require.Equal(t, exitWrite, code, "%d KiB: %s", kib, said)
				require.Contains(t, said, "no space left on device")
				require.Contains(t, said, "--temp-dir")
				require.NotContains(t, said, "fault of the encoder")
				require.NoFileExists(t, at("out.mender"))
				left, err := os.ReadFile(at("left"))
				require.NoError(t, err)
				require.Empty(t, string(left), "%d KiB", kib)
			}
			require.Positive(t, failed)
			_ = os.Remove(at("out.mender"))
		})
	}
	t.Run("cache", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(at("cache")))
		require.NoError(t, os.Symlink("full", at("cache")))
		for _, kib := range []int{4, 64, 512} {
			code, said := run(kib, append(first, "--image", pushed+"=shop/web:1", "--output-path", "out.mender")...)
			require.Zero(t, code, "%d KiB: %s", kib, said)
			require.NoError(t, os.Remove(at("out.mender")))
		}
	})
}
