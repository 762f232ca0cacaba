package source

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/gentest"
)

func TestDockerArchive(t *testing.T) {
	web := gentest.Image(t, "linux/amd64", gentest.Files{"a": "1"}, gentest.Files{"b": "2"})
	side := gentest.Image(t, "linux/amd64", gentest.Files{"a": "1"}, gentest.Files{"c": "3"})
	dir := t.TempDir()
	one := gentest.DockerArchive(t, filepath.Join(dir, "one.tar"), map[string]v1.Image{"web:1": web})
	two := gentest.DockerArchive(t, filepath.Join(dir, "two.tar"), map[string]v1.Image{"web:1": web, "side:1": side})

	f, err := open(t, opener(t, "linux/amd64"), "docker-archive:"+one)
	require.NoError(t, err)
	require.Equal(t, gentest.Digest(t, web), f.Image.ConfigDigest.String())
	require.Equal(t, Normal("web:1"), Normal(f.URL))
	content(t, f)

	f, err = open(t, opener(t, "linux/amd64"), "docker-archive:"+two+":side:1=other:2")
	require.NoError(t, err)
	require.Equal(t, gentest.Digest(t, side), f.Image.ConfigDigest.String())
	require.Equal(t, "other:2", f.URL)

	_, err = open(t, opener(t, "linux/amd64"), "docker-archive:"+two)
	require.Error(t, err, "which of the two is meant?")
	_, err = open(t, opener(t, "linux/amd64"), "docker-archive:"+two+":none:1")
	require.ErrorContains(t, err, "none:1")
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Contains(t, e.Hint, "side:1")

	_, err = open(t, opener(t, "linux/arm/v7"), "docker-archive:"+one)
	var p *image.PlatformError
	require.True(t, errors.As(err, &p))
	require.ErrorContains(t, err, "linux/amd64")

	_, err = open(t, opener(t, "linux/amd64"), "docker-archive:"+dir+"/none.tar")
	require.EqualError(t, err, dir+"/none.tar does not exist")
	bad := filepath.Join(dir, "bad.tar")
	require.NoError(t, os.WriteFile(bad, []byte("not a tar"), 0o600))
	_, err = open(t, opener(t, "linux/amd64"), "docker-archive:"+bad)
	require.ErrorIs(t, err, image.ErrFormat)
}

func TestLayout(t *testing.T) {
	web := gentest.Image(t, "linux/arm/v7", gentest.Files{"a": "1"})
	amd := gentest.Image(t, "linux/amd64", gentest.Files{"a": "2"})
	dir := gentest.Layout(t, t.TempDir(), "1", gentest.Index(t, web, amd))

	_, err := open(t, opener(t, "linux/arm/v7"), "oci:"+dir)
	require.ErrorContains(t, err, "has no name", "a tag alone names no image")
	for _, spec := range []string{"oci:" + dir + "=web:1", "oci:" + dir + ":1=web:1"} {
		f, err := open(t, opener(t, "linux/arm/v7"), spec)
		require.NoError(t, err, spec)
		require.Equal(t, "web:1", f.URL)
		require.Equal(t, gentest.Digest(t, web), f.Image.ConfigDigest.String())
		content(t, f)
	}
	_, err = open(t, opener(t, "linux/riscv64"), "oci:"+dir+"=web:1")
	require.ErrorContains(t, err, "there is linux/amd64, linux/arm/v7")
}

// skopeo stands for the other tools on build hosts.
func TestSkopeo(t *testing.T) {
	need(t, "skopeo")
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": gentest.Text("a", 1<<16)}, gentest.Files{"b": "2"})
	dir := t.TempDir()
	host := gentest.Registry(t, "", "")
	gentest.Push(t, host+"/web:1", img, "", "")
	pushed, err := open(t, opener(t, "linux/amd64"), host+"/web:1")
	require.NoError(t, err)
	want := pushed.Image.DiffIDs
	for _, to := range []string{"docker-archive:" + dir + "/a.tar:web:1", "oci:" + dir + "/layout:web:1", "oci-archive:" + dir + "/o.tar:web:1"} {
		out, err := exec.Command("skopeo", "--insecure-policy", "copy", "-q", "--src-tls-verify=false", "docker://"+host+"/web:1", to).CombinedOutput()
		require.NoError(t, err, "%s", out)
		f, err := open(t, opener(t, "linux/amd64"), to)
		require.NoError(t, err, to)
		require.Equal(t, Normal("web:1"), Normal(f.URL), to)
		require.Equal(t, want, f.Image.DiffIDs, to) // skopeo rewrites the config for OCI
		content(t, f)
	}
}

// need skips a test if a command is missing. In CI, where nothing may be missing, it
// fails the test.
func need(t testing.TB, command string) {
	t.Helper()
	if _, err := exec.LookPath(command); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing in CI: %s", command)
	}
	t.Skipf("needs %s (make setup)", command)
}
