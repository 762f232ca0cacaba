package compose

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

func (b *bench) id(ref string) string {
	b.Helper()
	res, err := b.cli.ImageInspect(b.Context(), ref)
	require.NoError(b, err)
	return res.ID
}

// A release that fails comes back with its service's last words, and the old
// one with ROLLBACK, tag and all.
func TestFailingReleases(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ more, want string }{
		"exits":     {"    command: [exit, \"3\", \"0.3\"]\n", "service web exited with code 3; it last said: my last words"},
		"ends well": {"    command: [exit, \"0\", \"0.3\"]\n    healthcheck:\n      test: [CMD, /prog, check, /version]\n", "service web exited with code 0 but should keep running: it has a health check or publishes ports"},
		"restarts":  {"    command: [exit, \"4\", \"0.3\"]\n    restart: always\n", "service web restarts"},
		"stops":     {"    command: [exit, \"0\", \"0.3\"]\n    restart: unless-stopped\n", "service web restarts"},
		"unhealthy": {"    healthcheck:\n      test: [CMD, /prog, check, /none]\n      interval: 200ms\n      retries: 2\n", "service web is unhealthy: the last check failed with 1: prog [check /none] not well"},
		"no start":  {"    entrypoint: [/nothing/here]\n", "failed half-way: service web could not be started"},
		"depends":   {"    depends_on:\n      job:\n        condition: service_completed_successfully\n  job:\n    image: IMAGE:1\n    network_mode: none\n    command: [exit, \"5\"]\n", "service job exited with code 5"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v1, v2 := b.load("1"), b.load("2")
			req := submodules.Request{App: b.app, Dir: b.release("1", compose(b.app, "")), Components: []submodules.Component{v1}}
			require.NoError(t, b.mod.Rollout(t.Context(), req))
			b.conf("HEALTH_DEADLINE=20\nHEALTH_WINDOW=1500ms\n") // they fail later than 300 ms after their start
			old := b.id(b.app + ":1")

			bad := submodules.Request{App: b.app, Dir: b.release("2", compose(b.app, strings.ReplaceAll(c.more, "IMAGE", b.app))), Components: []submodules.Component{v2}}
			err := b.mod.Rollout(t.Context(), bad)
			require.ErrorIs(t, err, submodules.ErrUnhealthy)
			require.ErrorContains(t, err, c.want)
			if strings.Contains(c.more, "exit") {
				require.Contains(t, b.log.String(), "my last words")
			}
			ok, err := b.mod.Healthy(t.Context(), submodules.Request{App: b.app})
			require.NoError(t, err)
			require.False(t, ok)
			require.NotEqual(t, old, b.id(b.app+":1"))

			req.Dir = b.release("1", nil)
			require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: req}))
			require.Equal(t, old, b.id(b.app+":1"))
			require.Equal(t, old, b.one("web").ImageID)
			require.Equal(t, "running", string(b.one("web").State))
			require.Empty(t, b.service("job"), "what only the failed release had is gone")
		})
	}
}

func TestGoodReleases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	rollout := func(id string, files map[string]string) {
		t.Helper()
		req := submodules.Request{App: b.app, Dir: b.release(id, files), Components: []submodules.Component{v1}}
		require.NoError(t, b.mod.Rollout(t.Context(), req))
	}
	// A job that ends well, a health check that passes.
	rollout("job", compose(b.app, "    healthcheck:\n      test: [CMD, /prog, check, /version]\n      interval: 200ms\n"+
		"    depends_on:\n      job:\n        condition: service_completed_successfully\n  job:\n    image: "+b.app+":1\n    network_mode: none\n    command: [exit, \"0\"]\n"))
	require.Equal(t, "exited", string(b.one("job").State))
	ok, err := b.mod.Healthy(t.Context(), submodules.Request{App: b.app})
	require.NoError(t, err)
	require.True(t, ok)

	// A service that is gone, several files by a shipped .env, a profile, a scale.
	files := compose(b.app, "    scale: 2\n"+
		serviceText("off", b.app+":1")+"    profiles: [debug]\n"+
		serviceText("on", b.app+":1")+"    profiles: [extra]\n")
	files["more.yml"] = "services:\n  web:\n    environment:\n      A: ${VALUE}\n"
	files[".env"] = "COMPOSE_FILE=docker-compose.yml:more.yml\nCOMPOSE_PROFILES=extra\nVALUE=from-env\n"
	rollout("many", files)
	require.Empty(t, b.service("job"))
	require.Empty(t, b.service("off"))
	b.one("on")
	require.Len(t, b.service("web"), 2)
	full, err := b.cli.ContainerInspect(t.Context(), b.service("web")[0].ID)
	require.NoError(t, err)
	require.Contains(t, full.Config.Env, "A=from-env")

	// One that says how its image was built, on another machine.
	before := b.service("web")[0].ID
	rollout("build", compose(b.app, "    build: {context: ./src, args: {A: b}}\n"))
	require.NotEqual(t, before, b.one("web").ID, "it had a scale of 2 and another environment")
	built := b.one("web").ID
	rollout("not-built", compose(b.app, ""))
	require.Equal(t, built, b.one("web").ID, "build: alone changes nothing")
	rollout("many", files)

	// One of two is removed behind our back: not alive.
	require.NoError(t, b.cli.ContainerRemove(t.Context(), b.service("web")[0].ID, container.RemoveOptions{Force: true}))
	ok, err = b.mod.Alive(t.Context(), submodules.Request{App: b.app})
	require.NoError(t, err)
	require.False(t, ok)

	// A name of the file's own: the other project's containers go.
	named := compose(b.app, "")
	named["docker-compose.yml"] = "name: " + b.app + "-named\n" + named["docker-compose.yml"]
	rollout("named", named)
	require.Equal(t, b.app+"-named", b.one("web").Labels[labelProject])
	require.Empty(t, b.service("on"))
}

// A service may name its image by the digest of a manifest, which no engine
// knows of an image that was loaded.
func TestImageByDigest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, ref := range []string{b.app + ":1@sha256:" + strings.Repeat("ab", 32), b.app + "@sha256:" + strings.Repeat("ab", 32)} {
		v1 := b.load("1")
		v1.URL = ref
		files := compose(b.app, "")
		files["docker-compose.yml"] = strings.ReplaceAll(files["docker-compose.yml"], b.app+":1", ref)
		require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release("1", files), Components: []submodules.Component{v1}}))
		b.one("web")
		require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
		require.Empty(t, b.tags(b.app+":latest"))
	}
}

// A service is recreated exactly when what it mounts from the manifests changed.
func TestMountedFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	files := compose(b.app, "    volumes: [\"./conf:/conf:ro\"]\n"+
		serviceText("other", b.app+":1")+"    volumes: [\"./one.txt:/one.txt:ro\"]\n    configs: [c]\n"+
		serviceText("none", b.app+":1")+
		"configs:\n  c:\n    file: ./c.txt\n")
	files["conf/a.txt"] = "a1"
	files["one.txt"], files["c.txt"] = "1", "c1"
	ids := func(id string) (string, string, string) {
		t.Helper()
		require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: b.release(id, files), Components: []submodules.Component{v1}}))
		return b.one("web").ID, b.one("other").ID, b.one("none").ID
	}
	web1, other1, none1 := ids("1")
	web2, other2, none2 := ids("2") // the same content at another place
	require.Equal(t, []string{web1, other1, none1}, []string{web2, other2, none2})
	files["conf/a.txt"] = "a2"
	web3, other3, none3 := ids("3")
	require.NotEqual(t, web1, web3)
	require.Equal(t, []string{other1, none1}, []string{other3, none3})
	files["c.txt"] = "c2"
	// What was mounted outlives its release; what nothing mounts any more goes,
	// unless a service has written into it.
	source := func(service, target string) string {
		t.Helper()
		for _, m := range b.one(service).Mounts {
			if m.Destination == target {
				return m.Source
			}
		}
		t.Fatalf("%s mounts nothing at %s", service, target)
		return ""
	}
	conf, one := source("web", "/conf"), source("other", "/one.txt")
	for _, id := range []string{"1", "2", "3"} {
		require.NoError(t, os.RemoveAll(filepath.Join(b.store, b.app, "releases", id)))
	}
	got, err := os.ReadFile(filepath.Join(conf, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "a2", string(got))
	require.NoError(t, os.WriteFile(filepath.Join(conf, "written"), []byte("data"), 0o600))
	web4, other4, none4 := ids("4")
	require.NotEqual(t, other1, other4)
	require.Equal(t, []string{web3, none1}, []string{web4, none4})
	require.Equal(t, one, source("other", "/one.txt"))
	files["conf/a.txt"], files["one.txt"] = "a5", "5"
	ids("5")
	_, err = os.Stat(one)
	require.ErrorIs(t, err, os.ErrNotExist)
	got, err = os.ReadFile(filepath.Join(conf, "written"))
	require.NoError(t, err)
	require.Equal(t, "data", string(got))
	require.Contains(t, b.log.String(), "a service has written into it")

	// PURGE takes the copies, and what was written into them only as data.
	mounts := filepath.Join(b.store, b.app, "mounts")
	left := func() (names []string) {
		entries, _ := os.ReadDir(mounts)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Greater(t, len(left()), 1)
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.Equal(t, []string{filepath.Base(filepath.Dir(conf))}, left())
	require.FileExists(t, filepath.Join(conf, "written"))
	b.load("1")
	ids("6")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	// Its containers are gone by now: the copies are found by the directory.
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: b.store}, Data: true}))
	require.DirExists(t, mounts, "a directory that is not the application's")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app, Dir: filepath.Join(b.store, b.app, "manifests")}, Data: true}))
	require.NoDirExists(t, mounts)
}

// Where nobody replaces the manifests a label does the same.
func TestMountedFilesByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	dir := filepath.Join(b.store, "by-hand")
	rollout := func(text string) string {
		t.Helper()
		files := compose(b.app, "    volumes: [\"./conf:/conf:ro\"]\n")
		files["conf/a.txt"] = text
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		require.NoError(t, b.mod.Rollout(t.Context(), submodules.Request{App: b.app, Dir: dir, Components: []submodules.Component{v1}}))
		ok, err := b.mod.Healthy(t.Context(), submodules.Request{App: b.app})
		require.NoError(t, err)
		require.True(t, ok)
		list, err := b.cli.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelDir+"="+dir))})
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0].ID
	}
	first := rollout("a1")
	require.Equal(t, first, rollout("a1"))
	require.NotEqual(t, first, rollout("a2"))
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
}

// What cannot be installed is refused by name before anything changes.
func TestRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	good := submodules.Request{App: b.app, Dir: b.release("good", compose(b.app, "")), Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(t.Context(), good))
	web := b.one("web")
	for want, c := range map[string]struct {
		files map[string]string
		is    error
	}{
		"service x has build: and no image:":                   {compose(b.app, "  x:\n    build: .\n"), submodules.ErrContent},
		"service web has pull_policy: always":                  {compose(b.app, "    pull_policy: always\n"), submodules.ErrContent},
		"are not valid: ":                                      {compose(b.app, "    colour: green\n"), submodules.ErrContent},
		"no compose file in":                                   {map[string]string{"x.txt": "x"}, submodules.ErrContent},
		"uses the image " + b.app + "-none:7, which":           {compose(b.app, "  x:\n    image: "+b.app+"-none:7\n"), submodules.ErrNotFound},
		`names "../../other.yml", outside`:                     {map[string]string{".env": "COMPOSE_FILE=../../other.yml"}, submodules.ErrContent},
		"have no service":                                      {map[string]string{"compose.yaml": "services: {}\n"}, submodules.ErrContent},
		"come to more than 8 MiB":                              {compose(b.app, "x-a: &a "+strings.Repeat("a", 1<<17)+"\nx-b: ["+strings.Repeat("*a, ", 1<<7)+"]\n"), submodules.ErrContent},
		"no-such.env":                                          {compose(b.app, "    env_file: no-such.env\n"), submodules.ErrContent},
		"is in use by container person-of-" + b.app + "-web-1": {compose(b.app, "name: person-of-"+b.app+"\n"), submodules.ErrContent},
	} {
		t.Run(want, func(t *testing.T) {
			if strings.Contains(want, "person-of") {
				// A person's project of that name, from another directory.
				cfg := &container.Config{Image: b.app + ":1", Labels: map[string]string{labelProject: "person-of-" + b.app, labelService: "web", labelDir: b.store + "/elsewhere", labelOneoff: "False"}}
				made, err := b.cli.ContainerCreate(t.Context(), cfg, &container.HostConfig{NetworkMode: "none"}, nil, nil, "person-of-"+b.app+"-web-1")
				require.NoError(t, err)
				defer func() {
					_, err := b.cli.ContainerInspect(context.Background(), made.ID)
					require.NoError(t, err)
					require.NoError(t, b.cli.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true}))
				}()
			}
			req := submodules.Request{App: b.app, Dir: b.release(fmt.Sprintf("%x", want), c.files), Components: []submodules.Component{v1}}
			err := b.mod.Rollout(t.Context(), req)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, want)
			require.Equal(t, web.ID, b.one("web").ID)
			require.Equal(t, "running", string(b.one("web").State))
		})
	}
	t.Run("not loaded", func(t *testing.T) {
		_, v9 := b.image("9")
		req := submodules.Request{App: b.app, Dir: b.release("good", nil), Components: []submodules.Component{v9}}
		err := b.mod.Rollout(t.Context(), req)
		require.ErrorIs(t, err, submodules.ErrNotFound)
		require.ErrorContains(t, err, "is not there: install an artifact that contains it")
		require.Equal(t, web.ID, b.one("web").ID)
	})
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := b.release("1", compose(b.app, ""))
	req := submodules.Request{App: b.app, Dir: dir}
	conf := filepath.Join(b.mod.Config.ConfigDir, "mender-app-docker-compose.conf")

	v1 := filepath.Join(t.TempDir(), "docker-compose")
	require.NoError(t, os.WriteFile(v1, []byte("#!/bin/sh\necho 1.29.2\n"), 0o700))
	require.NoError(t, os.WriteFile(conf, []byte("DOCKER_COMPOSE_COMMAND="+v1+"\nSHOE_SIZE=43\n"), 0o600))
	err := b.mod.Rollout(t.Context(), req)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "is Docker Compose 1.29.2, too old: version 2 or later is needed; install")
	require.Contains(t, b.log.String(), `unknown setting "SHOE_SIZE" is ignored`)

	require.NoError(t, os.WriteFile(conf, []byte("DOCKER_COMPOSE_COMMAND=/no/such/command\n"), 0o600))
	err = b.mod.Rollout(t.Context(), req)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "no Docker Compose found; install")

	require.NoError(t, os.WriteFile(conf, []byte("A=1\nDOCKER_COMMAND=$(reboot)\n"), 0o600))
	err = b.mod.Rollout(t.Context(), req)
	require.ErrorContains(t, err, "mender-app-docker-compose.conf:2: DOCKER_COMMAND")

	require.NoError(t, os.Remove(conf))
	b.mod.Config.Env = append(b.mod.Config.Env, "DOCKER_HOST=unix:///no/such.sock")
	err = b.mod.Rollout(t.Context(), req)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "there is no socket /no/such.sock")
}

// Two applications, and a person, on one engine.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	a, b := newBench(t), newBench(t)
	va, vb := a.load("1"), b.load("1")
	ra := submodules.Request{App: a.app, Dir: a.release("1", compose(a.app, "")), Components: []submodules.Component{va}}
	rb := submodules.Request{App: b.app, Dir: b.release("1", compose(b.app, "")), Components: []submodules.Component{vb}}
	require.NoError(t, a.mod.Rollout(t.Context(), ra))
	require.NoError(t, b.mod.Rollout(t.Context(), rb))
	// A person gives b's image another name.
	require.NoError(t, b.cli.ImageTag(t.Context(), b.app+":1", b.app+"-mine:7"))
	before := a.one("web")
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.Equal(t, before.ID, a.one("web").ID)
	require.Equal(t, "running", string(a.one("web").State))
	require.Equal(t, []string{b.app + "-mine:7"}, b.tags(b.app+"-mine:7"))
	list, err := a.mod.List(t.Context(), submodules.Request{App: a.app})
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// What LIST prints of an image that was loaded by its digest, LOAD, SAVE and DELETE take.
func TestListsNamesThatLoadTakes(t *testing.T) {
	b := newBench(t)
	img, comp := b.image("1")
	pinned := b.app + "-web@" + comp.Digest.String()
	bare := submodules.Request{App: b.app}
	require.NoError(t, b.mod.Load(t.Context(), submodules.LoadRequest{Request: bare, URL: pinned, Path: b.archive(img, b.app+"-other:9")}))
	list, err := b.mod.List(t.Context(), bare)
	require.NoError(t, err)
	require.Len(t, list, 1)
	listed := list[0].URL
	require.Contains(t, listed, "@"+comp.Digest.String())
	require.NoError(t, b.mod.Load(t.Context(), submodules.LoadRequest{Request: bare, URL: listed, Path: os.DevNull}), "it is present")
	require.NoError(t, b.mod.Save(t.Context(), submodules.SaveRequest{Request: bare, URL: listed, Path: filepath.Join(t.TempDir(), "image.tar")}))
	require.NoError(t, b.mod.Delete(t.Context(), submodules.DeleteRequest{Request: bare, URL: listed}))
	list, err = b.mod.List(t.Context(), bare)
	require.NoError(t, err)
	require.Empty(t, list)
}

// One image under two names: both are pinned, told of, and go one by one.
func TestSeveralNames(t *testing.T) {
	b := newBench(t)
	web := b.load("1")
	worker := web
	worker.URL = b.app + "-worker:1"
	request := func(list ...submodules.Component) submodules.Request {
		return submodules.Request{App: b.app, Components: list}
	}
	req := submodules.LoadRequest{Request: request(worker), URL: worker.URL, Path: os.DevNull, Stage: true}
	require.NoError(t, b.mod.Load(t.Context(), req), "it is present")
	require.Empty(t, b.tags(web.URL), "staged")
	require.Empty(t, b.tags(worker.URL), "staged")

	two := request(web, worker)
	two.Dir = b.release("1", compose(b.app, "  worker: {image: \""+worker.URL+"\"}\n"))
	require.NoError(t, b.mod.Rollout(t.Context(), two))
	require.Len(t, b.tags(web.URL), 3)
	require.Equal(t, b.tags(web.URL), b.tags(worker.URL))
	list, err := b.mod.List(t.Context(), submodules.Request{App: b.app})
	require.NoError(t, err)
	var urls []string
	for _, c := range list {
		require.Equal(t, web.Digest, c.Digest)
		urls = append(urls, c.URL)
	}
	require.ElementsMatch(t, []string{web.URL, worker.URL}, urls)
	bad, err := b.mod.Verify(t.Context(), two)
	require.NoError(t, err)
	require.Empty(t, bad)

	require.NoError(t, b.mod.Delete(t.Context(), submodules.DeleteRequest{Request: request(worker, web), URL: worker.URL}))
	require.Len(t, b.tags(web.URL), 3, "a container has that name")
	one := request(web)
	one.Dir = b.release("2", compose(b.app, ""))
	require.NoError(t, b.mod.Rollout(t.Context(), one))
	require.NoError(t, b.mod.Delete(t.Context(), submodules.DeleteRequest{Request: request(worker, web), URL: worker.URL}))
	require.Len(t, b.tags(web.URL), 2)
	require.Empty(t, b.tags(worker.URL))
	require.NotEmpty(t, b.one("web").ID)

	// Back to two names: no content is needed; and PURGE takes both.
	two.Dir = b.release("1", compose(b.app, "  worker: {image: \""+worker.URL+"\"}\n"))
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: two}))
	require.Len(t, b.tags(worker.URL), 3)
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.Empty(t, b.tags(web.URL))
	require.Empty(t, b.tags(worker.URL))
}

func TestPurgeData(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	req := submodules.Request{App: b.app, Components: []submodules.Component{v1},
		Dir: b.release("1", compose(b.app, "    volumes: [\"data:/data\"]\nvolumes:\n  data: {}\n"))}
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	has := func() bool {
		_, err := b.cli.VolumeInspect(t.Context(), b.app+"_data")
		return err == nil
	}
	require.True(t, has())
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}}))
	require.True(t, has(), "data stays unless it is asked for")
	b.load("1")
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.NoError(t, b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}, Data: true}))
	require.False(t, has())
}

// A verb that is told to end does so within 5 seconds, with all its children.
func TestTerm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	// Up waits for a health check that never passes.
	slow := compose(b.app, "    depends_on:\n      dep:\n        condition: service_healthy\n"+
		serviceText("dep", b.app+":1")+"    healthcheck:\n      test: [CMD, /prog, check, /none]\n      interval: 60s\n")
	ctx, cancel := context.WithCancel(t.Context())
	b.mod.Config.KillAfter = 20 * time.Second
	done := make(chan error, 1)
	go func() {
		done <- b.mod.Rollout(ctx, submodules.Request{App: b.app, Dir: b.release("1", slow), Components: []submodules.Component{v1}})
	}()
	require.Eventually(t, func() bool { return len(b.service("dep")) == 1 && b.one("dep").State == "running" }, 20*time.Second, 50*time.Millisecond)
	began := time.Now()
	cancel()
	err := <-done
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, err, submodules.ErrDeadline)
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, p := range procs {
		text, _ := os.ReadFile(p)
		require.NotContains(t, string(text), b.store, "a process stayed behind")
	}
}
