package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// write lets the service web write a file.
func (b *bench) write(path, text string) {
	b.Helper()
	b.docker("exec", b.one("web").ID, "/prog", "write", path, text)
}

// has requires that the service web finds a file.
func (b *bench) has(path string) {
	b.Helper()
	b.docker("exec", b.one("web").ID, "/prog", "check", path)
}

// dataFiles are the files of the application's data.
func (b *bench) dataFiles() (files []string) {
	b.Helper()
	base := filepath.Join(b.store, b.app, dataDir)
	_ = filepath.WalkDir(base, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(base, name)
			files = append(files, rel)
		}
		return nil
	})
	return files
}

// What a service writes to a directory that no release brings is there in every release, at
// each start, after a rollback, and after PURGE without data.
func TestDataDirectories(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	release := func(id, more string) submodules.Request {
		return submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release(id, compose(b.app,
			"    volumes: [\"./data:/data\", \"./var/lib/shop:/lib\"]\n"+more))}
	}
	require.Error(t, b.mod.Rollout(t.Context(), release("0", "    runtime: none-such\n")))
	require.DirExists(t, filepath.Join(b.store, b.app, dataDir, "data"))
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: filepath.Join(b.store, b.app, "manifests")}, First: true}))
	require.NoDirExists(t, filepath.Join(b.store, b.app, dataDir), "a first installation that fails leaves nothing")

	v1 = b.load("1")
	require.NoError(t, b.mod.Rollout(t.Context(), release("1", "")))
	b.write("/data/a", "a")
	b.write("/lib/b", "b")
	require.Equal(t, []string{"data/a", "var/lib/shop/b"}, b.dataFiles())
	fi, err := os.Stat(filepath.Join(b.store, b.app, dataDir, "data"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), fi.Mode().Perm(), "as the engine makes it")

	web := b.one("web").ID
	require.NoError(t, b.mod.Rollout(t.Context(), release("2", serviceText("other", b.app+":1"))))
	require.Equal(t, web, b.one("web").ID)
	require.NoError(t, os.RemoveAll(filepath.Join(b.store, b.app, "releases", "1")))
	b.docker("restart", "-t", "1", web)
	b.has("/data/a")
	require.NoError(t, b.mod.Rollout(t.Context(), release("3", "    environment: {A: b}\n")))
	require.NotEqual(t, web, b.one("web").ID)
	b.has("/data/a")
	b.write("/data/c", "c")
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("2", nil)}
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}))
	b.has("/data/c")

	volumes, err := b.mod.Volumes(t.Context(), submodules.VolumesRequest{Request: submodules.Request{App: b.app, Dir: filepath.Join(b.store, b.app, "releases", "3", "manifests")}})
	require.NoError(t, err)
	at := filepath.Join(b.store, b.app, dataDir)
	require.Equal(t, []submodules.Volume{{Name: "./data", Dir: at + "/data"}, {Name: "./var/lib/shop", Dir: at + "/var/lib/shop"}}, volumes)

	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req}))
	require.Equal(t, []string{"data/a", "data/c", "var/lib/shop/b"}, b.dataFiles())
	b.load("1")
	require.NoError(t, b.mod.Rollout(t.Context(), release("4", "")))
	b.has("/data/a")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req, Data: true}))
	require.NoDirExists(t, at)
}

// An older version let the engine make the directory in the release. The service keeps its
// container and its data; when it changes, its path does as well.
func TestDataDirectoriesAreAdopted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	text := "    volumes: [\"./data:/data\"]\n"
	up := func(dir string) {
		t.Helper()
		cmd := exec.Command("docker", "compose", "--project-directory", dir, "-p", b.app, "-f", filepath.Join(dir, "docker-compose.yml"), "up", "-d")
		cmd.Env = append(cmd.Environ(), "DOCKER_HOST="+host())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	b.docker("tag", "mender-app.local/"+b.app+":"+v1.Digest.Hex(), b.app+":1")
	one := b.release("1", compose(b.app, text))
	past(t, one)
	up(one)
	web := b.one("web").ID
	b.write("/data/a", "a")
	require.FileExists(t, filepath.Join(b.store, b.app, "releases", "1", "manifests", "data", "a"))
	// The engine restarted it when another release was the current one.
	past(t, b.release("2", compose(b.app, text+serviceText("other", b.app+":1"))))
	b.docker("restart", "-t", "1", web)
	b.write("/data/b", "b")

	rollout := func(id, more string) {
		t.Helper()
		next := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(next, "compose.yaml"), []byte(compose(b.app, text+more)["docker-compose.yml"]), 0o600))
		changes, err := b.mod.Check(t.Context(), submodules.Request{App: b.app, Dir: next, Components: []submodules.Component{v1}})
		require.NoError(t, err)
		require.Equal(t, more == "", len(changes.Keeps) == 1, "%+v", changes)
		req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release(id, compose(b.app, text+more))}
		require.NoError(t, b.mod.Rollout(t.Context(), req))
	}
	rollout("3", "")
	require.Equal(t, web, b.one("web").ID, "an unchanged service stays")
	require.ElementsMatch(t, []string{"data/b", "data.1/a"}, b.dataFiles(), "nothing is lost")
	b.has("/data/b")
	require.NoError(t, os.RemoveAll(filepath.Join(b.store, b.app, "releases", "2")))
	b.docker("restart", "-t", "1", web)
	b.has("/data/b")
	rollout("4", "")
	require.Equal(t, web, b.one("web").ID)
	b.docker("restart", "-t", "1", web)
	b.has("/data/b")
	rollout("5", "    environment: {A: b}\n")
	require.NotEqual(t, web, b.one("web").ID)
	require.Equal(t, filepath.Join(b.store, b.app, dataDir, "data"), b.one("web").Mounts[0].Source)
	b.has("/data/b")
	// Rolled back to a release that the older version ran.
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", nil)}}))
	b.has("/data/b")
}

// The directory of the project itself can be mounted, with data and volumes below it.
func TestWholeProject(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	text := "    volumes: [\".:/src:ro\", \"./data:/src/data\", \".:/again\", \"/again/modules\"]\n"
	rollout := func(id, more string) {
		t.Helper()
		files := compose(b.app, text)
		files["src/main.py"], files["more"] = "print(1)", more
		req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release(id, files)}
		require.NoError(t, b.mod.Rollout(t.Context(), req))
	}
	rollout("1", "")
	b.has("/src/src/main.py")
	b.has("/src/docker-compose.yml")
	b.write("/src/data/a", "a")
	web := b.one("web").ID
	rollout("2", "")
	require.Equal(t, web, b.one("web").ID, "nothing changed")
	rollout("3", "more")
	require.NotEqual(t, web, b.one("web").ID)
	b.has("/src/data/a")
	entries, err := os.ReadDir(filepath.Join(b.store, b.app, mountsDir))
	require.NoError(t, err)
	require.Len(t, entries, 1, "the copy of release 2 went")

	home := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("4", compose(b.app, "    volumes: [\"~/data:/data\"]\n"))}
	require.ErrorContains(t, b.mod.Rollout(t.Context(), home), "service web mounts ~/data")
}

// past makes the files of a release older than what its services write.
func past(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	later := func() bool {
		at, err := changed(filepath.Join(root, "docker-compose.yml"))
		require.NoError(t, err)
		probe := filepath.Join(t.TempDir(), "now")
		require.NoError(t, os.WriteFile(probe, nil, 0o600))
		now, err := changed(probe)
		require.NoError(t, err)
		return now.Sub(at) > 1e9
	}
	for !later() {
		time.Sleep(100 * time.Millisecond)
	}
}
