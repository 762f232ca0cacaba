package deploy

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/submodules"
)

// envModule is a sub-module that declares a name, and notes what it gets.
type envModule struct {
	*world
	got []map[string]string
}

func (m *envModule) Describe(ctx context.Context) (submodules.Info, error) {
	info, err := m.world.Describe(ctx)
	info.Env = []string{"PY_VENV", "PATH"}
	return info, err
}

func (m *envModule) Load(ctx context.Context, r submodules.LoadRequest) error {
	m.got = append(m.got, r.Env)
	return m.world.Load(ctx, r)
}

func (m *envModule) Rollout(ctx context.Context, r submodules.Request) error {
	m.got = append(m.got, r.Env)
	return m.world.Rollout(ctx, r)
}

// A name in the metadata's environment reaches a sub-module that declares it, or
// whose operator allows it; the log says why another one is dropped.
func TestEnvironment(t *testing.T) {
	g := newRig(t)
	m := &envModule{world: g.w}
	var log strings.Builder
	g.with = func(e *Engine) {
		e.Find = func(string) (submodules.Client, error) { return play(m), nil }
		e.AllowEnv = []string{"TARGET"}
		e.Log = slog.New(slog.NewTextHandler(&log, nil))
	}
	tr := g.newTree(t, release{app: "shop", name: "shop-1", images: v1.images, env: map[string]string{
		"PY_VENV": "/opt/venv", "TARGET": "two", "OTHER": "x", "K8S_NAMESPACE": "shop",
	}})
	require.NoError(t, g.call(modules.Download, tr))
	require.NoError(t, g.call(modules.ArtifactInstall, tr))
	require.Len(t, m.got, 3)
	for _, got := range m.got {
		require.Equal(t, map[string]string{"PY_VENV": "/opt/venv", "TARGET": "two", "K8S_NAMESPACE": "shop"}, got)
	}
	require.Contains(t, log.String(), "name=OTHER")
	require.NotContains(t, log.String(), "name=TARGET")
}
