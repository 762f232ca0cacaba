package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Two clones of a commit at different places, and users with different umasks, make the same
// release, byte by byte, which names neither place. What is not a release is refused.
func TestReleaseIsReproducible(t *testing.T) {
	bed.Require(t, "git", "openssl")
	key := filepath.Join(t.TempDir(), "key.pem")
	sh(t, t.TempDir(), "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out '"+key+"' 2>/dev/null && openssl pkey -in '"+key+"' -pubout -out '"+key+".pub'")

	var sums []string
	for _, c := range []struct{ place, umask string }{{"one", "022"}, {"a longer way/two", "077"}} {
		clone := filepath.Join(t.TempDir(), c.place)
		sh(t, "/", "umask "+c.umask+"; git -c safe.directory='*' clone --quiet '"+bed.Repository()+"' '"+clone+"'")
		version := strings.TrimSpace(sh(t, clone, `sed -n 's/^const Number = "\(.*\)"$/\1/p' cmd/internal/version/version.go`))
		makes := "umask " + c.umask + "; make -s release VERSION=" + version + " KEY='" + key + "' ARCHES=" + runtime.GOARCH + " FORMATS='deb rpm apk ipk archlinux'"
		refused := func(want string) {
			t.Helper()
			cmd := exec.Command("sh", "-c", makes)
			cmd.Dir, cmd.Env = clone, environment()
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), want)
			require.NoDirExists(t, filepath.Join(clone, "build/release"))
		}
		// The clone has the tags of this tree, which may be those of a release.
		sh(t, clone, "git tag -d v"+version+" 2>/dev/null || true")
		refused("the commit has no tag v" + version)
		sh(t, clone, "git tag v"+version)
		require.NoError(t, os.WriteFile(filepath.Join(clone, "new"), nil, 0o644))
		refused("changes that are not committed")
		require.NoError(t, os.Remove(filepath.Join(clone, "new")))

		sh(t, clone, makes)
		release := filepath.Join(clone, "build/release")
		sh(t, release, "sha256sum --quiet --check SHA256SUMS && openssl dgst -sha256 -verify '"+key+".pub' -signature SHA256SUMS.sig SHA256SUMS")
		sums = append(sums, sh(t, release, "cat SHA256SUMS"))
		for _, file := range []string{
			"mender-app-" + version + ".tar.gz", "mender-app-" + version + "-vendored.tar.gz",
			"meta-mender-app-" + version + ".tar.gz", "buildroot-mender-app-" + version + ".tar.gz", "mender-app-" + version + "-linux-" + runtime.GOARCH + ".tar.gz",
			"sbom/mender-app-" + version + "-linux-" + runtime.GOARCH + "-app.cdx.json",
			"packages/mender-app_" + strings.ReplaceAll(version, "-", "~") + "-1_" + runtime.GOARCH + ".deb",
		} {
			require.Contains(t, sums[len(sums)-1], "  "+file+"\n")
		}
		tree := t.TempDir()
		sh(t, tree, "tar -xzf '"+release+"'/mender-app-*-linux-*.tar.gz")
		require.Equal(t, "app "+version+"\n", sh(t, tree, "usr/share/mender/modules/v3/app --version"))
		for _, recipes := range []string{"meta-mender-app", "buildroot-mender-app"} {
			tree := t.TempDir()
			sh(t, tree, "tar -xzf '"+release+"'/"+recipes+"-*.tar.gz && grep -rq $(sha256sum <'"+release+"/mender-app-"+version+"-vendored.tar.gz' | cut -d' ' -f1) .")
		}
		// t.TempDir names every directory of this test by the test.
		sh(t, tree, "! grep -rlF "+t.Name()+" . '"+release+"/sbom'")
	}
	require.Equal(t, sums[0], sums[1])
}

// sh runs a command and returns its output.
func sh(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, environment(), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}

// environment is this process's, without what make has told it.
func environment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") && !strings.HasPrefix(v, "GOFLAGS=") {
			env = append(env, v)
		}
	}
	return env
}
