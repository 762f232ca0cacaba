package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A layer of 256 MiB goes through app-gen in gzip, registry sources aside, without ever
// being in memory: the peak of the whole process stays under 100 MiB.
func TestMemory(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("moves 256 MiB: not with -short, and only where peak memory is told in KiB")
	}
	const size, limit = 256 << 20, 100 << 10
	dir := t.TempDir()
	bigArchive(t, filepath.Join(dir, "big.tar"), size)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "m"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m/compose.yaml"), []byte("services: {big: {image: 'big:1'}}\n"), 0o644))
	program := filepath.Join(dir, "app-gen")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, args := range [][]string{
		{"-a", "big", "-n", "big-1", "-t", "box", "-p", "linux/amd64", "--orchestrator", "docker-compose", "-m", "m", "--deep-delta=false", "-i", "docker-archive:big.tar"},
		{"inspect", "app-artifact.mender"},
		{"-a", "big", "-n", "big-2", "-t", "box", "-p", "linux/amd64", "--orchestrator", "docker-compose", "-m", "m", "--deep-delta=false", "-i", "mender:app-artifact.mender", "--output-path", "again.mender"},
	} {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		t.Logf("%v: peak %d KiB", args[:1], peak)
		require.Less(t, peak, int64(limit))
	}
	a, err := os.ReadFile(filepath.Join(dir, "app-artifact.mender"))
	require.NoError(t, err)
	require.Greater(t, len(a), size/2)
}

// bigArchive writes a docker-archive with one layer of about size bytes that
// do not compress, itself without holding it.
func bigArchive(t *testing.T, path string, size int64) {
	t.Helper()
	layerSize := size + 512 + 1024
	layer := func(w io.Writer) {
		tw := tar.NewWriter(w)
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: size, Format: tar.FormatUSTAR}))
		_, err := io.CopyN(tw, rand.NewChaCha8([32]byte{1}), size)
		require.NoError(t, err)
		require.NoError(t, tw.Close())
	}
	sum := sha256.New()
	layer(sum)
	config := fmt.Sprintf(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, sum.Sum(nil))
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{"big:1"}, "Layers": []string{"layer.tar"}}})
	require.NoError(t, err)
	f, err := os.Create(path)
	require.NoError(t, err)
	tw := tar.NewWriter(f)
	for _, m := range []struct{ name, content string }{{"config.json", config}, {"manifest.json", string(manifest)}} {
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: m.name, Mode: 0o644, Size: int64(len(m.content))}))
		_, err := io.WriteString(tw, m.content)
		require.NoError(t, err)
	}
	require.NoError(t, tw.WriteHeader(&tar.Header{Name: "layer.tar", Mode: 0o644, Size: layerSize}))
	layer(tw)
	require.NoError(t, tw.Close())
	require.NoError(t, f.Close())
}
