package compose

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Volumes without a name are data: PURGE leaves them and says so, and PURGE with data finds
// them when no container mounts them any more, also those of services that an earlier release
// had. Somebody else's stay.
func TestPurgeFindsVolumesWithoutAName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	has := func(volume string) bool {
		_, err := b.cli.VolumeInspect(t.Context(), volume)
		return err == nil
	}
	of := func(service string) string {
		t.Helper()
		for _, m := range b.one(service).Mounts {
			if isAnonymous(m.Name) {
				return m.Name
			}
		}
		t.Fatalf("%s has no volume without a name", service)
		return ""
	}
	b.other()
	stranger := b.docker("volume", "create")
	t.Cleanup(func() { _ = b.cli.VolumeRemove(context.Background(), stranger, true) })
	service := "    image: APP:1\n    stop_grace_period: 1s\n    volumes: [\"/unnamed\"]\n"
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1}}

	req.Dir = b.release("1", map[string]string{"compose.yaml": b.named("services:\n  web:\n" + service + "  job:\n" + service)})
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	web, job := of("web"), of("job")
	b.release("2", map[string]string{"compose.yaml": b.named("services:\n  web:\n" + service)})
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.Equal(t, web, of("web"))
	b.docker("rm", "--force", b.one("web").ID) // by hand, and its volume with it for the engine

	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req}))
	for volume, service := range map[string]string{web: "web", job: "job"} {
		require.True(t, has(volume), service)
		require.Contains(t, b.log.String(), "volume "+volume+" stays: it is data of the application, which service "+service+" had in /unnamed")
	}
	note := filepath.Join(b.store, b.app, unnamedName)
	require.FileExists(t, note)

	// What the store does when it forgets an application.
	require.NoError(t, os.Remove(req.Dir))
	require.NoError(t, os.RemoveAll(filepath.Join(b.store, b.app, "releases")))
	b.docker("create", "--name", b.app+"-user", "--volume", web+":/data", "mender-app-test-other:1")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: req.Dir}, Data: true}))
	require.False(t, has(job))
	require.True(t, has(web), "a container of somebody uses it")
	require.Contains(t, b.log.String(), "volume "+web+" stays: it is in use")
	b.docker("rm", "--force", b.app+"-user")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: req.Dir}, Data: true}))
	require.False(t, has(web))
	require.NoFileExists(t, note)
	require.True(t, has(stranger), "nobody said that it is the application's")
}

// A service whose container is gone gets its volume without a name back: an operator
// restarted it or switched it off and on, somebody removed the container, a rollback leads to
// a release that has the service, or the application was removed without its data. From then
// on updates leave the service alone, and a first release that fails leaves the data.
func TestVolumesWithoutANameComeBack(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(b *bench, req submodules.Request){
		"switched off": func(b *bench, req submodules.Request) {
			req.Disabled = []string{"side"}
			require.NoError(b, b.mod.Start(b.Context(), req))
		},
		"removed by hand": func(b *bench, _ submodules.Request) { b.docker("rm", "--force", b.one("side").ID) },
		"not in a release": func(b *bench, req submodules.Request) {
			b.release("2", map[string]string{"compose.yaml": b.named("services:\n  web:\n    image: APP:1\n    stop_grace_period: 1s\n")})
			require.NoError(b, b.mod.Rollout(b.Context(), req))
		},
		"purged without data": func(b *bench, req submodules.Request) {
			require.NoError(b, b.mod.Purge(b.Context(), submodules.PurgeRequest{Request: req}))
			req.Components = []submodules.Component{b.load("1")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			req := submodules.Request{App: b.app, Components: []submodules.Component{b.load("1")}}
			files := map[string]string{"compose.yaml": b.named(`services:
  web:
    image: APP:1
    stop_grace_period: 1s
    depends_on: [side]
  side:
    image: APP:1
    stop_grace_period: 1s
    volumes: ["/unnamed", "./conf:/conf"]
`), "conf": "a"}
			req.Dir = b.release("1", files)
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			volume := b.unnamed()

			gone(b, req)
			require.Empty(t, b.service("side"))
			for range 2 { // the second one goes back to what runs
				b.release("1", nil)
				require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}))
				require.Equal(t, volume, b.unnamed())
			}
			web, side := b.one("web").ID, b.one("side").ID
			require.NoError(t, b.mod.Start(t.Context(), req))
			b.release("3", files)
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			require.Equal(t, []string{web, side}, []string{b.one("web").ID, b.one("side").ID}, "nothing has changed")

			// A release that changes the service.
			files["conf"] = "b"
			b.release("4", files)
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			require.Equal(t, volume, b.unnamed())
			require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req, First: true}))
			_, err := b.cli.VolumeInspect(t.Context(), volume)
			require.NoError(t, err, "it was there before this release")
			require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req, Data: true}))
			_, err = b.cli.VolumeInspect(t.Context(), volume)
			require.True(t, docker.IsNotFound(err), "%v", err)
		})
	}
}

// A project with a name of its own is found again by what a PURGE has written down, and
// volumes of others stay.
func TestPurgeFindsVolumesOfANamedProject(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	name := b.app + "-own"
	dir := b.release("1", map[string]string{"compose.yaml": "name: " + name + "\nservices:\n  web:\n    image: " + b.app + ":1\n    stop_grace_period: 1s\n    volumes: [\"kept:/kept\"]\nvolumes: {kept: {}}\n"})
	req := submodules.Request{App: b.app, Dir: dir, Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: req}))
	note := filepath.Join(b.store, b.app, keptName)
	require.FileExists(t, note)

	// What the store does when it forgets an application.
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.RemoveAll(filepath.Join(b.store, b.app, "releases")))
	b.docker("volume", "create", "--label", labelProject+"=somebody", name+"-other")
	t.Cleanup(func() { _ = b.cli.VolumeRemove(context.Background(), name+"-other", true) })
	text, err := os.ReadFile(note)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(note, []byte(strings.Replace(string(text), "[", `[{"name": "`+name+`-other", "project": "`+name+`"},`, 1)), 0o600))
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: dir}, Data: true}))
	_, err = b.cli.VolumeInspect(t.Context(), name+"_kept")
	require.Error(t, err)
	_, err = b.cli.VolumeInspect(t.Context(), name+"-other")
	require.NoError(t, err, "it is another project's")
	require.NoFileExists(t, note)
}

// A file that is damaged, or that names what has a name, leads to no removal.
func TestUnnamedVolumesOfADamagedFile(t *testing.T) {
	name := strings.Repeat("0a", 32)
	for text, want := range map[string][]unnamedVolume{
		`[{"name":"` + name + `","service":"web","path":"/data"}]`: {{Name: name, Service: "web", Path: "/data"}},
		`[{"name":"shop_counts"},{"name":"../` + name + `"}]`:      {},
		`[{"name":"` + name: nil,
		"":                  nil,
	} {
		path := filepath.Join(t.TempDir(), unnamedName)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := readUnnamed(path)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	got, err := readUnnamed(filepath.Join(t.TempDir(), unnamedName))
	require.NoError(t, err)
	require.Empty(t, got)
}
