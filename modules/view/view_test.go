package view

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// shop is an application with two releases; phase is that of its deployment from
// the first to the second.
func shop(t *testing.T, phase journal.Phase) *store.Store {
	t.Helper()
	s := store.At(t.TempDir())
	a, err := s.Create("shop")
	require.NoError(t, err)
	for _, id := range []string{"1-shop-1", "2-shop-2"} {
		require.NoError(t, a.PutRelease(&store.Release{ID: id, Application: "shop", ArtifactName: id[2:], Orchestrator: "fake",
			Env: map[string]string{"K8S_NAMESPACE": "north", "MINE": "1", "ALLOWED": "2", "OTHER": "3"}}))
	}
	a.Current = "1-shop-1"
	require.NoError(t, a.Point(a.Current))
	if phase != journal.None {
		a.Deployment = &store.Deployment{ID: "2", ArtifactName: "shop-2", From: "1-shop-1", To: "2-shop-2", Phase: phase}
	}
	require.NoError(t, a.Save())
	return s
}

// The state tells of the deployment, and the release is the one that runs.
func TestRead(t *testing.T) {
	for phase, want := range map[journal.Phase]struct{ state, running string }{
		journal.None:        {Installed, "1-shop-1"},
		journal.Downloading: {Interrupted, "1-shop-1"},
		journal.Loaded:      {Loaded, "1-shop-1"},
		journal.Installing:  {Interrupted, "2-shop-2"},
		journal.Installed:   {Waiting, "2-shop-2"},
		journal.RollingBack: {Interrupted, "1-shop-1"},
	} {
		s := shop(t, phase)
		a, err := s.App("shop")
		require.NoError(t, err)
		require.NoError(t, a.Point(want.running))
		got, err := Read(s, "shop")
		require.NoError(t, err)
		require.Equal(t, want.state, got.State, phase)
		require.Equal(t, want.running, got.Running, phase)
		require.Equal(t, "1-shop-1", got.Committed, phase)
		require.True(t, got.ShouldRun())
		require.Equal(t, want.state == Interrupted, got.Problem != "")
	}
	// A rollback that failed.
	s := shop(t, journal.RollingBack)
	a, err := s.App("shop")
	require.NoError(t, err)
	a.Deployment.Attempts, a.Deployment.Error = 1, "no such image"
	require.NoError(t, a.Save())
	got, err := Read(s, "shop")
	require.NoError(t, err)
	require.Contains(t, got.Problem, "no such image; mender-app resume tries again, and any release can be installed over it")
}

// answers is a sub-module.
type answers struct {
	features []string
	req      submodules.Request
	logs     submodules.LogsRequest
	alive    bool

	together [][]string // the applications of each call of Statuses
	several  []submodules.Component
	silent   string // Statuses does not tell of it
	err      error  // of Statuses
}

func (m *answers) Describe(context.Context) (submodules.Info, error) {
	return submodules.Info{Features: m.features, Env: []string{"MINE"}}, nil
}
func (m *answers) Alive(_ context.Context, r submodules.Request) (bool, error) {
	m.req = r
	return m.alive, nil
}
func (m *answers) Healthy(context.Context, submodules.Request) (bool, error) { return true, nil }
func (m *answers) Status(_ context.Context, r submodules.Request) (submodules.Status, error) {
	m.req = r
	return submodules.Status{Alive: true, Services: []submodules.Service{{Name: "web"}}}, nil
}

func (m *answers) Statuses(_ context.Context, r submodules.Request, apps []string, each func(string, submodules.Status)) error {
	m.together, m.several = append(m.together, apps), r.Components
	m.req = r
	for _, app := range apps {
		if app != m.silent {
			each(app, submodules.Status{Alive: true, Healthy: true})
		}
	}
	return m.err
}

func (m *answers) Render(context.Context, submodules.Request) ([]byte, error) { return nil, nil }

func (m *answers) Logs(_ context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error {
	m.logs = r
	return each(submodules.LogLine{Service: "web", Text: "hello"})
}

// The sub-module is asked with the environment of the release, and by the verbs that
// it has.
func TestStatus(t *testing.T) {
	a, err := Read(shop(t, journal.None), "shop")
	require.NoError(t, err)
	m := &answers{}
	v := &Viewer{Find: func(string) (Submodule, error) { return m, nil }, AllowEnv: []string{"ALLOWED"}}
	st, err := v.Status(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, Status{}, st, "what is not alive is not healthy")
	require.Equal(t, map[string]string{"K8S_NAMESPACE": "north", "MINE": "1", "ALLOWED": "2"}, m.req.Env)
	m.alive = true
	st, err = v.Status(t.Context(), a)
	require.NoError(t, err)
	require.True(t, st.Healthy && !st.Known)
	m.features = []string{submodules.FeatureStatus}
	st, err = v.Status(t.Context(), a)
	require.NoError(t, err)
	require.True(t, st.Known && st.Alive && !st.Healthy)
	require.Len(t, st.Services, 1)
}

// Logs come from a sub-module with the feature; another one is named.
func TestLogs(t *testing.T) {
	a, err := Read(shop(t, journal.None), "shop")
	require.NoError(t, err)
	m := &answers{}
	v := &Viewer{Find: func(string) (Submodule, error) { return m, nil }}
	said := ""
	logs := func() error {
		return v.Logs(t.Context(), a, "web", 7, true, func(l submodules.LogLine) error { said += l.Text; return nil })
	}
	err = logs()
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "does not have the feature logs/1")
	m.features = []string{submodules.FeatureLogs}
	require.NoError(t, logs())
	require.Equal(t, "hello", said)
	require.Equal(t, "web", m.logs.Service)
	require.Equal(t, 7, *m.logs.Lines)
	require.True(t, m.logs.Follow)
}

// Applications that are asked for in the same way are asked for together, at most
// MaxApps at a time; one that is left out is asked for alone, and the error of a call is
// that of each application without an answer.
func TestOverviews(t *testing.T) {
	s := store.At(t.TempDir())
	names := []string{}
	for i := range submodules.MaxApps + 3 {
		name := fmt.Sprintf("app%02d", i)
		a, err := s.Create(name)
		require.NoError(t, err)
		require.NoError(t, a.PutRelease(&store.Release{ID: "1-r", Orchestrator: "fake", Env: map[string]string{"K8S_NAMESPACE": "north"}, Components: []store.Component{{Type: "image", URL: name + "/web:1"}}}))
		a.Current = "1-r"
		a.Stopped = i == 1
		if i == 2 {
			require.NoError(t, a.PutRelease(&store.Release{ID: "1-r", Orchestrator: "fake", Env: map[string]string{"K8S_NAMESPACE": "south"}}))
		}
		require.NoError(t, a.Point(a.Current))
		require.NoError(t, a.Save())
		names = append(names, name)
	}
	names = append(names, "none")
	m := &answers{features: []string{submodules.FeatureStatus, submodules.FeatureStatuses}, silent: "app03"}
	v := &Viewer{Find: func(string) (Submodule, error) { return m, nil }}
	ask := func() (healths map[string]string, errs int) {
		m.together, healths = nil, map[string]string{}
		v.Overviews(t.Context(), s, names, func(i int, o *Overview, err error) {
			if err != nil {
				require.ErrorIs(t, err, store.ErrNoApp)
				errs++
				return
			}
			require.Equal(t, names[i], o.Name)
			require.NotContains(t, healths, o.Name)
			healths[o.Name] = o.Health
		})
		require.Len(t, healths, len(names)-1)
		require.Equal(t, 1, errs)
		return healths, errs
	}
	healths, _ := ask()
	require.Len(t, m.together, 1, "the last call has one application, which is asked for alone")
	require.Len(t, m.together[0], submodules.MaxApps)
	require.NotContains(t, m.together[0], "app01", "it is stopped")
	require.NotContains(t, m.together[0], "app02", "it is in another namespace")
	require.Len(t, m.several, submodules.MaxApps)
	require.Contains(t, m.several, submodules.Component{Type: "image", URL: "app00/web:1", App: "app00"})
	require.Empty(t, healths["app01"])
	require.Equal(t, submodules.Healthy, healths["app00"])
	require.Equal(t, submodules.Unhealthy, healths["app03"], "as Status says")
	m.err = errors.New("no engine")
	healths, _ = ask()
	require.Equal(t, Unknown, healths["app03"])
	require.Equal(t, submodules.Healthy, healths["app00"])
	m.features = m.features[:1]
	healths, _ = ask()
	require.Empty(t, m.together)
	require.Equal(t, submodules.Unhealthy, healths["app00"])
}
