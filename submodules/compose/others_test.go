package compose

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/level"
)

// neighbour is another application in the store of a bench, with a container that has a
// named and an unnamed volume.
func (b *bench) neighbour(app, version string) (at *bench, req submodules.Request) {
	b.Helper()
	other := *b
	other.app = app
	b.Cleanup(func() { other.clean(app) })
	v1 := other.load(version)
	files := compose(app, "    volumes: [\"data:/data\", /unnamed]\nvolumes:\n  data: {}\n")
	files["docker-compose.yml"] = strings.Replace(files["docker-compose.yml"], "    "+host2+"\n", "", 1)
	req = submodules.Request{App: app, Components: []submodules.Component{v1}, Dir: other.release("1", files)}
	require.NoError(b, other.mod.Rollout(b.Context(), req))
	b.Cleanup(func() {
		_ = b.cli.VolumeRemove(b.Context(), app+"_data", true)
	})
	return &other, req
}

// An application uses nothing of another one, by whatever name or path, unless the operator
// allows the pair. CHECK says so before, and nothing changes.
func TestOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	kiosk := b.app + "kiosk"
	other, its := b.neighbour(kiosk, "1")
	ct := other.one("web")
	var unnamed string
	for _, m := range ct.Mounts {
		if isAnonymous(m.Name) {
			unnamed = m.Name
		}
	}
	require.NotEmpty(t, unnamed)
	on, err := b.cli.VolumeInspect(t.Context(), kiosk+"_data")
	require.NoError(t, err)
	info, err := b.cli.Info(t.Context())
	require.NoError(t, err)
	alias := t.TempDir()
	require.NoError(t, os.Symlink(b.store, filepath.Join(alias, "link")))
	require.NoError(t, os.Symlink(filepath.Join(b.store, kiosk, "not-yet"), filepath.Join(alias, "dangling")))
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/%d/root", os.Getpid()), filepath.Join(alias, "proc")))

	mount := func(source string) string { return "    volumes: ['" + source + ":/theirs']\n" }
	readOnly := func(source string) string { return "    volumes: ['" + source + ":/theirs:ro']\n" }
	named := func(volume string) string { return mount("data") + "volumes: {data: " + volume + "}\n" }
	conf := filepath.Join(b.mod.Config.ConfigDir, confName)
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	check := func(name, more string) error {
		t.Helper()
		project, rest, ok := strings.Cut(more, "|")
		if !ok {
			project, rest = b.app, more
		}
		files := compose(b.app, rest)
		files["docker-compose.yml"] = "name: " + project + "\n" + files["docker-compose.yml"]
		if strings.Contains(rest, "network") {
			files["docker-compose.yml"] = strings.Replace(files["docker-compose.yml"], "    "+host2+"\n", "", 1)
		}
		req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release(strings.ReplaceAll(name, " ", "-"), files)}
		_, err := b.mod.Check(t.Context(), req)
		return err
	}
	for name, c := range map[string]struct{ more, pair string }{
		"external volume":      {named("{external: true, name: " + kiosk + "_data}"), kiosk},
		"named volume":         {named("{name: " + kiosk + "_data}"), kiosk},
		"volume to come":       {named("{name: " + kiosk + "_later}"), kiosk},
		"unnamed volume":       {named("{external: true, name: " + unnamed + "}"), kiosk},
		"bind in a volume":     {named("{driver_opts: {type: none, o: bind, device: " + filepath.Join(b.store, kiosk) + "}}"), kiosk},
		"relative in a volume": {named("{driver_opts: {type: none, o: bind, device: " + filepath.Join(b.store, kiosk)[1:] + "}}"), kiosk},
		"overlay":              {named("{driver_opts: {type: overlay, device: overlay, o: 'lowerdir=/etc:" + filepath.Join(b.store, kiosk) + "'}}"), kiosk},
		"path of a volume":     {mount(on.Mountpoint), kiosk},
		"below a volume":       {readOnly(on.Mountpoint + "/some/where"), kiosk},
		"path of the engine":   {mount(filepath.Join(info.DockerRootDir, "containers")), "*"},
		"above volumes":        {mount(info.DockerRootDir), "*"},
		"manifests":            {mount(filepath.Join(b.store, kiosk, "manifests")), kiosk},
		"read-only":            {readOnly(filepath.Join(b.store, kiosk, "manifests")), kiosk},
		"data to come":         {mount(filepath.Join(b.store, kiosk, "data", "later")), kiosk},
		"dot-dot":              {mount("../../" + kiosk + "/manifests"), kiosk},
		"link":                 {mount(filepath.Join(alias, "link", kiosk)), kiosk},
		"link to nothing":      {mount(filepath.Join(alias, "dangling")), kiosk},
		"through proc":         {mount("/proc/self/root" + filepath.Join(b.store, kiosk)), "*"},
		"link to proc":         {mount(filepath.Join(alias, "proc")), "*"},
		"beside the store":     {mount(filepath.Join(b.store+"-data", kiosk)), kiosk},
		"the store":            {mount(b.store), "*"},
		"above the store":      {mount(filepath.Dir(b.store)), "*"},
		"of no application":    {mount(filepath.Join(b.store, ".mender-app")), "*"},
		"secrets":              {mount("/run/mender-app/secrets/" + kiosk), kiosk},
		"external network":     {"    networks: [n]\nnetworks: {n: {external: true, name: " + kiosk + "_default}}\n", kiosk},
		"named network":        {"    networks: [n]\nnetworks: {n: {name: " + kiosk + "_default}}\n", kiosk},
		"network to come":      {"    networks: [n]\nnetworks: {n: {name: " + kiosk + "_later}}\n", kiosk},
		"network mode":         {"    network_mode: " + kiosk + "_default\n", kiosk},
		"network of container": {"    network_mode: container:" + kiosk + "-web-1\n", kiosk},
		"by ID":                {"    network_mode: container:" + ct.ID[:12] + "\n", kiosk},
		"pid":                  {"    pid: container:" + kiosk + "-web-1\n", kiosk},
		"ipc":                  {"    ipc: container:" + kiosk + "-web-1\n", kiosk},
		"volumes of container": {"    volumes_from: ['container:" + kiosk + "-web-1:ro']\n", kiosk},
		"link of old":          {"    external_links: ['" + kiosk + "-web-1:them']\n", kiosk},
	} {
		require.NoError(t, os.WriteFile(conf, settings, 0o600))
		err := check(name, c.more)
		pair := b.app + ":" + c.pair
		require.ErrorIs(t, err, submodules.ErrContent, name)
		require.ErrorContains(t, err, "refused unless ALLOW_OTHERS in "+confName+" has "+pair, name)
		require.Empty(t, b.ids(), "nothing was started")
		for _, allowed := range []string{pair, b.app + ":*"} {
			require.NoError(t, os.WriteFile(conf, append([]byte(`ALLOW_OTHERS="till:web `+allowed+"\"\n"), settings...), 0o600))
			if err := check(name, c.more); err != nil { // Compose or the engine may refuse it
				require.NotContains(t, err.Error(), "ALLOW_OTHERS", name)
			}
		}
	}

	require.NoError(t, os.WriteFile(conf, settings, 0o600))
	_, err = b.cli.VolumeCreate(t.Context(), volume.CreateOptions{Name: b.app + "-of-nobody"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.cli.VolumeRemove(t.Context(), b.app+"-of-nobody", true) })
	// The engine takes a name before the beginning of an ID.
	called, err := b.cli.ContainerCreate(t.Context(), &container.Config{Image: ct.Image}, nil, nil, nil, ct.ID[:8])
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = b.cli.ContainerRemove(context.Background(), called.ID, container.RemoveOptions{Force: true})
	})
	for name, more := range map[string]string{
		"named as an ID":   "    network_mode: container:" + ct.ID[:8] + "\n",
		"own":              named("{}"),
		"own, named":       named("{name: " + b.app + "_mine}"),
		"operator's":       named("{external: true, name: " + b.app + "-of-nobody}"),
		"path of a device": mount("/etc/hostname"),
		"own data":         mount("./data"),
		"own file":         mount("./docker-compose.yml"),
		"bridge":           "    network_mode: bridge\n",
		"logs":             readOnly(filepath.Join(info.DockerRootDir, "containers")),
		"monitor":          readOnly(info.DockerRootDir),
		"own container":    "    network_mode: service:stock\n" + serviceText("stock", b.app+":1"),
	} {
		require.NoError(t, check(name, more), name)
	}

	// Its containers are gone: its volumes and its project are its own all the same.
	require.NoError(t, b.mod.Stop(t.Context(), submodules.StopRequest{Request: its, Remove: true}))
	for name, more := range map[string]string{
		"external volume": named("{external: true, name: " + kiosk + "_data}"),
		"its project":     kiosk + "|" + named("{}"),
	} {
		err := check(name, more)
		require.ErrorIs(t, err, submodules.ErrContent, name)
		require.ErrorContains(t, err, "has "+b.app+":"+kiosk, name)
	}
	_, err = b.mod.Volumes(t.Context(), submodules.VolumesRequest{Request: submodules.Request{App: b.app, Dir: b.release("volumes", map[string]string{"docker-compose.yml": "name: " + kiosk + "\n" + compose(b.app, named("{}"))["docker-compose.yml"]})}})
	require.ErrorContains(t, err, "the project "+kiosk+", with its volumes and networks, is that of application "+kiosk)
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: filepath.Join(b.store, b.app, "manifests")}, Data: true}))
	_, err = b.cli.VolumeInspect(t.Context(), kiosk+"_data")
	require.NoError(t, err, "PURGE leaves what is another application's")
}

// The name of a container is one application's: another one that wants it is refused by CHECK,
// also while the first one has no containers, and whoever says the name in the files.
func TestNameOfAnotherApplication(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	kiosk := b.app + "kiosk"
	other, its := b.neighbour(kiosk, "1")
	files := compose(kiosk, "    container_name: ${OWN}\n"+serviceText("stock", kiosk+":1"))
	files[".env"] = "OWN=" + b.app + "-web-1\n"
	its.Dir = other.release("2", files)
	require.NoError(t, b.mod.Rollout(t.Context(), its))
	for _, containers := range []string{"running", "gone"} {
		if containers == "gone" {
			require.NoError(t, b.mod.Stop(t.Context(), submodules.StopRequest{Request: its, Remove: true}))
		}
		for name, more := range map[string]string{b.app + "-web-1": "", kiosk + "-stock-1": "    container_name: " + kiosk + "-stock-1\n"} {
			req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", compose(b.app, more))}
			_, err := b.mod.Check(t.Context(), req)
			require.ErrorIs(t, err, submodules.ErrContent, containers)
			require.ErrorContains(t, err, "a container with the name "+name+", which is one of application "+kiosk, containers)
			require.ErrorIs(t, b.mod.Rollout(t.Context(), req), submodules.ErrContent)
			require.Empty(t, b.ids())
		}
		req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", compose(b.app, "    container_name: "+b.app+"-own\n"))}
		_, err := b.mod.Check(t.Context(), req)
		require.NoError(t, err)
	}
}

// What an earlier version installed starts again, with a warning.
func TestOthersStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	kiosk := b.app + "kiosk"
	b.neighbour(kiosk, "1")
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1}, Dir: b.release("1", compose(b.app, "    volumes: ['data:/theirs']\nvolumes: {data: {external: true, name: "+kiosk+"_data}}\n"))}
	require.ErrorIs(t, b.mod.Rollout(t.Context(), req), submodules.ErrContent)
	require.Empty(t, b.ids())
	require.NoError(t, b.mod.Start(t.Context(), req))
	require.Contains(t, b.log.String(), "warning: service web mounts the volume "+kiosk+"_data of application "+kiosk)
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}))
}

// A pair is two names.
func TestPairs(t *testing.T) {
	require.NoError(t, level.Pairs{"shop:kiosk", "shop:*"}.Check())
	for _, bad := range []string{"shop", "*:kiosk", "shop:", ":kiosk", "shop:kiosk:web", "shop:../x"} {
		require.ErrorContains(t, level.Pairs{bad}.Check(), "is no pair", bad)
	}
}
