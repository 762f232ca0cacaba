package compose

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
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

// A file that is damaged, or that names what has a name, leads to no removal.
func TestUnnamedVolumesOfADamagedFile(t *testing.T) {
	name := strings.Repeat("0a", 32)
	for text, want := range map[string][]unnamedVolume{
		`[{"name":"` + name + `","service":"web","path":"/data"}]`: {{name, "web", "/data"}},
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
