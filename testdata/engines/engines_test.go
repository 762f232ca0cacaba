// Package engines tests the sub-module docker-compose as a device calls it, on every
// Docker engine and image store that it supports. MENDER_APP_ENGINES selects engines
// of bed.Engines (make test-engines). The default is the oldest engine and the
// newest store.
package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

const subModule = submodules.DefaultDir + "/docker-compose"

// onEngines runs a test on a device of every chosen engine.
func onEngines(t *testing.T, test func(t *testing.T, d *bed.Device)) {
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			bed.Require(t, "skopeo", "docker-registry")
			d := bed.StartWith(t, e)
			tree, err := e.Tree()
			require.NoError(t, err)
			if tree == "" {
				configure(t, d, "")
			} else { // the Compose that Debian has beside the engine
				configure(t, d, tree+"/usr/libexec/docker/cli-plugins/docker-compose")
			}
			test(t, d)
		})
	}
}

// configure sets the sub-module's Compose command. If compose is empty, the sub-
// module finds this machine's.
func configure(t *testing.T, d *bed.Device, compose string) {
	t.Helper()
	settings := "HEALTH_DEADLINE=60\nHEALTH_WINDOW=300ms\n"
	if compose != "" {
		settings += "DOCKER_COMPOSE_COMMAND=\"" + compose + "\"\n"
	}
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app-docker-compose.conf"), []byte(settings), 0o644))
}

// app is an application on a device.
type app struct {
	*testing.T
	d    *bed.Device
	name string
	env  []string // of every call
}

func newApp(t *testing.T, d *bed.Device, name string) *app {
	return &app{T: t, d: d, name: name}
}

// try calls the sub-module with the release's components.
func (a *app) try(release []submodules.Component, options string, args ...string) bed.Result {
	a.Helper()
	tmp, err := os.MkdirTemp(a.d.Share(""), "call-")
	require.NoError(a, err)
	defer os.RemoveAll(tmp)
	text, err := json.Marshal(release)
	require.NoError(a, err)
	list := filepath.Join(tmp, "components")
	require.NoError(a, os.WriteFile(list, text, 0o644))
	work := filepath.Join(tmp, "tmp")
	require.NoError(a, os.Mkdir(work, 0o755))

	ctx, cancel := context.WithTimeout(a.Context(), 3*time.Minute)
	defer cancel()
	cmd := a.d.Command(ctx, subModule, args...)
	cmd.Env = append(cmd.Env, submodules.EnvTempDir+"="+work, submodules.EnvOptions+"="+options)
	if release != nil {
		cmd.Env = append(cmd.Env, submodules.EnvComponents+"="+list)
	}
	cmd.Env = append(cmd.Env, a.env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	left, err := os.ReadDir(work)
	require.NoError(a, err)
	require.Empty(a, left, "temporary files of %v", args)
	return bed.Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// call calls the sub-module and fails the test if the call fails.
func (a *app) call(release []submodules.Component, options string, args ...string) bed.Result {
	a.Helper()
	r := a.try(release, options, args...)
	require.Zero(a, r.Code, "%s: exit %d\n%s", strings.Join(args, " "), r.Code, r.Output())
	return r
}

// load loads an image from a file and stages it.
func (a *app) load(i picture, path string) bed.Result {
	a.Helper()
	return a.call([]submodules.Component{i.Component}, submodules.OptionStage, submodules.VerbLoad, a.name, i.URL, path)
}

// manifests makes a release's compose file the current one and returns the directory
// to pass to ROLLOUT.
func (a *app) manifests(release, compose string) string {
	a.Helper()
	store := filepath.Join(a.d.Dir, "data/store", a.name)
	dir := filepath.Join(store, "releases", release, "manifests")
	require.NoError(a, os.MkdirAll(dir, 0o755))
	require.NoError(a, os.Chmod(filepath.Dir(store), 0o700)) // as app makes it
	require.NoError(a, os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte(compose), 0o644))
	link := filepath.Join(store, "manifests")
	_ = os.Remove(link)
	require.NoError(a, os.Symlink(filepath.Join("releases", release, "manifests"), link))
	return filepath.Join("/data/store", a.name, "manifests")
}

// list returns the components that LIST prints.
func (a *app) list(release []submodules.Component) (list []submodules.Component) {
	a.Helper()
	r := a.call(release, "", submodules.VerbList, a.name)
	require.NoError(a, json.Unmarshal([]byte(r.Stdout), &list), r.Stdout)
	return list
}

// container returns the output of docker inspect for a service's only container.
func (a *app) container(service, format string) string {
	a.Helper()
	return strings.TrimSpace(a.d.MustRun(a, "docker", "inspect", "--format", format, fmt.Sprintf("%s-%s-1", a.name, service)))
}
