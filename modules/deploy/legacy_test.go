package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/submodules"
)

var (
	web  = submodules.Component{Type: "image", URL: "web:1", Digest: digest.Of([]byte("web"))}
	side = submodules.Component{Type: "image", URL: "side:1", Digest: digest.Of([]byte("side"))}
)

// knows is a sub-module that lists components, some of them damaged.
type knows struct {
	list    []submodules.Component
	damaged digest.Digest
	err     error
	old     bool
}

func (k knows) Describe(context.Context) (submodules.Info, error) {
	if k.old {
		return submodules.Info{Protocol: "1.0"}, nil
	}
	return submodules.Info{Protocol: submodules.Protocol, Features: []string{submodules.FeatureVerify, submodules.FeatureComponents}}, nil
}

func (k knows) List(context.Context, submodules.Request) ([]submodules.Component, error) {
	return k.list, k.err
}

func (k knows) Verify(_ context.Context, r submodules.Request) (problems []string, err error) {
	for _, c := range r.Components {
		if c.Digest == k.damaged {
			problems = append(problems, c.URL+" is not whole")
		}
	}
	return problems, nil
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "modules/current")
	require.NoError(t, os.MkdirAll(filepath.Join(at, "manifests"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(at, "project_name"), []byte("shop\n"), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "store/reference/manifests"), 0o755))
	s := store.At(filepath.Join(dir, "store")).Beside(containermodules.At(filepath.Join(dir, "modules")))
	both := []submodules.Component{web, side}
	for name, c := range map[string]struct {
		app     string
		modules map[string]knows // by name
		says    string
		unknown bool
		damages int
	}{
		"whole":               {"shop", map[string]knows{"docker-compose": {list: both}}, "", false, 0},
		"damaged":             {"shop", map[string]knows{"docker-compose": {list: both, damaged: side.Digest}}, "", false, 1},
		"only Compose is it":  {"shop", map[string]knows{"k8s": {list: both}}, "no such sub-module: docker-compose", false, 0},
		"no container":        {"shop", map[string]knows{"docker-compose": {}}, "shop is not adopted yet, and no container shows which images it has", true, 0},
		"the engine is down":  {"shop", map[string]knows{"docker-compose": {err: errors.New("no engine")}}, "no engine", false, 0},
		"of either":           {"reference", map[string]knows{"docker-compose": {err: errors.New("no engine")}, "k8s": {list: both, damaged: web.Digest}}, "", false, 1},
		"old ones can't tell": {"reference", map[string]knows{"docker-compose": {list: both, old: true}, "k8s": {list: both, old: true}}, "nothing to verify", true, 0},
	} {
		require.True(t, s.Legacy(c.app))
		bad, err := VerifyLegacy(t.Context(), s, c.app, []string{"docker-compose", "k8s"}, func(module string) (LegacyModule, error) {
			k, ok := c.modules[module]
			if !ok {
				return nil, errors.New("no such sub-module: " + module)
			}
			return k, nil
		})
		require.Len(t, bad, c.damages, name)
		require.Equal(t, c.unknown, errors.Is(err, ErrNothingToVerify), name)
		if c.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.says, name)
		}
	}
}

// Of a project of mender-container-modules, all that the sub-module knows is adopted,
// and the names in the files that it does not know.
func TestComponents(t *testing.T) {
	known := []submodules.Component{web, side}
	job := store.Component{Type: "image", URL: "job:1"}
	webComponent := store.Component{Type: "image", URL: web.URL, Digest: web.Digest}
	sideComponent := store.Component{Type: "image", URL: side.URL, Digest: side.Digest}
	urls := []string{"web:1", "job:1"}
	require.Equal(t, []store.Component{webComponent, job}, legacyComponents(urls, known, false))
	require.Equal(t, []store.Component{webComponent, sideComponent, job}, legacyComponents(urls, known, true))
	require.Equal(t, []store.Component{{Type: "image", URL: "web:1"}, job}, legacyComponents(urls, nil, true))
}
