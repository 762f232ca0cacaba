package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// older is the commit of the programs that tests upgrade. Their fault points are compiled
// in.
const older = "392553c"

// OlderPrograms builds the programs of an earlier commit, once, from the history of the
// repository, and returns their directory. Without that history the test is skipped.
func OlderPrograms(t *testing.T) string {
	t.Helper()
	if err := exec.Command("git", "-C", bed.Repository(), "-c", "safe.directory=*", "cat-file", "-e", older+"^{commit}").Run(); err != nil {
		t.Skipf("commit %s: needs the history of the repository", older)
	}
	dir, err := olderPrograms()
	require.NoError(t, err)
	return dir
}

var olderPrograms = sync.OnceValues(func() (dir string, err error) {
	top := bed.Repository()
	dir = filepath.Join(top, "build", "older-"+older)
	if _, err := os.Stat(filepath.Join(dir, "app")); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp("", "mender-app-older-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	err = exec.Command("bash", "-euc", `
		set -o pipefail
		git -C "$1" -c safe.directory='*' archive "$2" | tar -x -C "$3"
		cd "$3"
		mkdir out
		CGO_ENABLED=0 go build -trimpath -buildvcs=false -o out/ ./cmd/app ./cmd/docker-compose ./cmd/mender-app ./cmd/app-gen
		mkdir -p "$1"/build
		mv -T out "$4"`, "build", top, older, tmp, dir).Run()
	return dir, err
})

// OlderRelease makes a release of the shop with the older app-gen.
func OlderRelease(t *testing.T, d *bed.Device, version, compose string, options ...string) string {
	t.Helper()
	manifests := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644))
	out := d.Share("shop-" + version + ".mender")
	args := append([]string{
		"--application-name", "shop", "--artifact-name", "shop-" + version, "--software-version", version, "--orchestrator", "docker-compose",
		"--device-type", bed.Type, "--platform", bed.Platform(), "--manifests-dir", manifests, "--output-path", out,
		Archive(t, Web(t, version, "")), Archive(t, Stock(t)),
	}, options...)
	if len(options) == 0 {
		args = append(args, "--deep-delta=false") // to code whole images takes a processor long
	}
	text, err := exec.Command(filepath.Join(OlderPrograms(t), "app-gen"), args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}
