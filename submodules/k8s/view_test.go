package k8s

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

func (c caller) Status(ctx context.Context, r submodules.Request) (submodules.Status, error) {
	return reply(ctx, c, submodules.VerbStatus, r, (*session).Status)
}

func (c caller) Check(ctx context.Context, r submodules.Request) (submodules.Changes, error) {
	return reply(ctx, c, submodules.VerbCheck, r, (*session).Check)
}

func (c caller) Logs(ctx context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error {
	return do(ctx, c, submodules.VerbLogs, r, func(s *session, ctx context.Context, r submodules.LogsRequest) error { return s.Logs(ctx, r, each) })
}

// TestView holds what an operator sees of an application: STATUS, LOGS and CHECK.
func TestView(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	check := func(dir string, components ...submodules.Component) (submodules.Changes, error) {
		r := n.request(n.ns, dir)
		r.Components = components
		return m.Check(ctx, r)
	}

	// CHECK comes before LOAD: the images of the components count as loaded.
	img := n.Image(t, "probe:any", nil, "VERSION=v1")
	first := n.manifests(deployment("web", "shop-view:1"), deployment("other", "shop-view:1"), configMap("c"))
	changes, err := check(first, component("shop-view:1", img))
	require.NoError(t, err)
	require.Equal(t, submodules.Changes{Starts: []string{"deployment/other", "deployment/web"}}, changes)
	_, err = check(first)
	require.ErrorIs(t, err, submodules.ErrNotFound, "an image that is neither there nor a component")
	_, err = check(n.manifests(strings.Replace(deployment("web", "shop-view:1"), "replicas: 1", "replicas: one", 1)), component("shop-view:1", img))
	require.NoError(t, err, "nothing can be asked of the server before there is a namespace")
	ns, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, ns, "CHECK makes no namespace")

	one := n.load(m, n.ns, "shop-view:1", "VERSION=v1")
	r := n.request(n.ns, first)
	r.Components = []submodules.Component{one}
	require.NoError(t, m.Rollout(ctx, r))

	t.Log("what would change")
	_, err = check(n.manifests(strings.Replace(deployment("web", "shop-view:1"), "replicas: 1", "replicas: one", 1)), one)
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "app.yaml")
	two := component("shop-view:1", n.Image(t, "probe:any", nil, "VERSION=v2"))
	more := strings.Replace(deployment("web", "shop-view:1"), "replicas: 1", "replicas: 2", 1)
	for what, c := range map[string]struct {
		dir       string
		component submodules.Component
		want      submodules.Changes
	}{
		"the same":      {first, one, submodules.Changes{Keeps: []string{"deployment/other", "deployment/web"}}},
		"another image": {first, two, submodules.Changes{Restarts: []string{"deployment/other", "deployment/web"}}},
		"one less":      {n.manifests(more, configMap("c")), one, submodules.Changes{Keeps: []string{"deployment/web"}, Removes: []string{"deployment/other"}}},
	} {
		changes, err := check(c.dir, c.component)
		require.NoError(t, err, what)
		require.Equal(t, c.want, changes, what)
	}

	t.Log("how it is")
	pod := n.pods("web")[0].Metadata.Name
	st, err := m.Status(ctx, n.request(n.ns, ""))
	require.NoError(t, err)
	require.True(t, st.Alive)
	require.True(t, st.Healthy, "%+v", st)
	require.Len(t, st.Services, 2)
	web := st.Services[1]
	require.False(t, web.Since.IsZero())
	web.Since = st.Services[0].Since
	require.Equal(t, submodules.Service{Name: "deployment/web", Instance: pod, Health: submodules.Healthy, Image: "shop-view:1", Since: web.Since}, web)

	t.Log("what it says, and what the next pod says")
	logs := submodules.LogsRequest{Request: n.request(n.ns, ""), Service: "deployment/nothing"}
	require.ErrorIs(t, m.Logs(ctx, logs, nil), submodules.ErrNotFound)
	logs.Service, logs.Follow = "deployment/web", true
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	said := map[string]string{} // the first line of each pod
	err = m.Logs(following, logs, func(l submodules.LogLine) error {
		require.Equal(t, "deployment/web", l.Service)
		require.False(t, l.At.IsZero())
		if _, ok := said[l.Instance]; !ok {
			said[l.Instance] = l.Text
			if l.Instance != pod {
				cancel()
				return nil
			}
			return n.c.Remove(ctx, cluster.ID{Kind: "Pod", Namespace: n.ns, Name: pod}, "")
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, said, 2)
	for instance, line := range said {
		require.Contains(t, line, "probe v1", instance)
	}

	t.Log("one that is stopped, and one that crashes")
	require.NoError(t, m.Stop(ctx, submodules.StopRequest{Request: n.request(n.ns, first)}))
	st, err = m.Status(ctx, n.request(n.ns, ""))
	require.NoError(t, err)
	require.Contains(t, st.Services, submodules.Service{Name: "deployment/web", Health: submodules.Down, Failure: "is stopped"})
	changes, err = check(first, one)
	require.NoError(t, err)
	require.Equal(t, submodules.Changes{Starts: []string{"deployment/other", "deployment/web"}}, changes)
	n.load(m, n.ns, "shop-view:3", "VERSION=v3", "EXIT=3")
	require.ErrorIs(t, m.Rollout(ctx, n.request(n.ns, n.manifests(deployment("web", "shop-view:3")))), submodules.ErrUnhealthy)
	st, err = m.Status(ctx, n.request(n.ns, ""))
	require.NoError(t, err)
	require.False(t, st.Healthy)
	found := false
	for _, v := range st.Services {
		if v.Name == "deployment/web" && strings.Contains(v.Failure, "CrashLoopBackOff") {
			found = true
			require.Positive(t, v.Restarts)
			require.Contains(t, v.Said, "probe v3 exits with status 3")
			require.False(t, v.Failed.IsZero())
		}
	}
	require.True(t, found, "%+v", st.Services)
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
}
