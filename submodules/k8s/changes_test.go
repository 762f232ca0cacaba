package k8s

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules"
)

func (c caller) Render(ctx context.Context, r submodules.Request) ([]byte, error) {
	return reply(ctx, c, submodules.VerbRender, r, (*session).Render)
}

// TestChanges holds what the device and an operator change in the manifests: overrides,
// values and services that are switched off. START carries a change out.
func TestChanges(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	image := n.load(m, n.ns, "shop-changes:1", "VERSION=v1")
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, annotations: {mender-app.io/values: \"true\"}}\ndata: {LANGUAGE: en}"
	reads := strings.Replace(deployment("web", "shop-changes:1"), "        image:", "        envFrom: [{configMapRef: {name: settings}}]\n        image:", 1)
	dir := n.manifests(reads, deployment("other", "shop-changes:1"), settings)
	request := func(change func(*submodules.Request)) submodules.Request {
		r := n.request(n.ns, dir)
		r.Components = []submodules.Component{image}
		if change != nil {
			change(&r)
		}
		return r
	}
	replicas := func(count string) func(*submodules.Request) {
		return func(r *submodules.Request) {
			r.Overrides = []submodules.Override{{Name: "operator.yaml", Text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: other}\nspec: {replicas: " + count + "}"}}
		}
	}
	language := func(r *submodules.Request) { r.Values = map[string]string{"LANGUAGE": "de"} }
	without := func(r *submodules.Request) { r.Disabled = []string{"deployment/other"} }
	uid := func(name string) types.UID {
		pods := n.pods(name)
		require.Len(t, pods, 1)
		return pods[0].Metadata.UID
	}

	require.NoError(t, m.Rollout(ctx, request(nil)))
	web := uid("web")

	t.Log("an override: CHECK says what it does, START does it, and without it START takes it back")
	changes, err := m.Check(ctx, request(replicas("2")))
	require.NoError(t, err)
	require.Equal(t, submodules.Changes{Keeps: []string{"deployment/other", "deployment/web"}}, changes)
	text, err := m.Render(ctx, request(replicas("2")))
	require.NoError(t, err)
	require.Contains(t, string(text), "replicas: 2")
	require.NoError(t, m.Start(ctx, request(replicas("2"))))
	require.Len(t, n.pods("other"), 2)
	require.NoError(t, m.Start(ctx, request(nil)))
	require.Len(t, n.pods("other"), 1)

	t.Log("one that the API server refuses changes nothing, and a ROLLBACK goes on without it")
	err = m.Start(ctx, request(replicas("two")))
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "with the override operator.yaml")
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: request(replicas("two"))}))
	require.Contains(t, n.log(), "going on without the overrides")
	require.Equal(t, web, uid("web"), "nothing replaced its pod")

	t.Log("a value replaces the pods that read it, and no others")
	other := uid("other")
	require.NoError(t, m.Start(ctx, request(language)))
	require.Equal(t, "de", n.field(n.get("", "ConfigMap", "settings"), "data.LANGUAGE"))
	require.NotEqual(t, web, uid("web"))
	require.Equal(t, other, uid("other"))

	t.Log("a service that is switched off is gone until it is switched on")
	require.NoError(t, m.Start(ctx, request(func(r *submodules.Request) { language(r); without(r) })))
	require.Nil(t, n.get("apps", "Deployment", "other"))
	healthy, err := m.Healthy(ctx, request(without))
	require.NoError(t, err)
	require.True(t, healthy, n.log())
	require.NoError(t, m.Stop(ctx, submodules.StopRequest{Request: request(without)}))
	require.NoError(t, m.Start(ctx, request(nil)))
	require.Len(t, n.pods("other"), 1)
	require.Len(t, n.pods("web"), 1)
	require.Equal(t, "en", n.field(n.get("", "ConfigMap", "settings"), "data.LANGUAGE"))
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: request(nil)}))
}
