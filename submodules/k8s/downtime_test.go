package k8s

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// A rollout tells how long each workload that it restarted was down, also one that
// failed; the rollback tells when it was ready again. A workload of which a pod was ready
// all the time is not named.
func TestDowntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	recreated := func(image string) string {
		return strings.Replace(deployment("web", image), "{rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}", "{type: Recreate}", 1)
	}
	call := func(verb string, do func(*session, context.Context, submodules.Request) error, docs ...string) (map[string]submodules.Downtime, error) {
		list, err := reply(t.Context(), m, verb, n.request(n.ns, n.manifests(docs...)), func(s *session, ctx context.Context, r submodules.Request) ([]submodules.Downtime, error) {
			err := do(s, ctx, r)
			return s.Downtimes(ctx, err != nil), err
		})
		down := map[string]submodules.Downtime{}
		for _, d := range list {
			down[d.Service] = d
		}
		require.Len(t, down, len(list), "%+v", list)
		return down, err
	}
	for version, env := range map[string]string{"1": "VERSION=v1", "2": "VERSION=v2", "3": "EXIT=3"} {
		n.load(m, n.ns, "shop-down:"+version, env)
	}
	down, err := call(submodules.VerbRollout, (*session).Rollout, recreated("shop-down:1"), deployment("stock", "shop-down:1"))
	require.NoError(t, err)
	for _, d := range down {
		require.True(t, d.Down.IsZero(), "nothing ran before: %+v", d)
	}

	before := time.Now()
	down, err = call(submodules.VerbRollout, (*session).Rollout, recreated("shop-down:2"), deployment("stock", "shop-down:2"))
	require.NoError(t, err)
	web := down["deployment/web"]
	require.WithinRange(t, web.Down, before.Add(-time.Second), web.Up)
	require.WithinRange(t, web.Up, web.Down.Add(100*time.Millisecond), time.Now())
	if stock, named := down["deployment/stock"]; named {
		t.Errorf("a pod took over from another: %+v", stock)
	}

	down, err = call(submodules.VerbRollout, (*session).Rollout, hasty(recreated("shop-down:3")), deployment("stock", "shop-down:2"))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.Len(t, down, 1, "%+v", down)
	web = down["deployment/web"]
	require.False(t, web.Down.IsZero())
	require.True(t, web.Up.IsZero())
	down, err = call(submodules.VerbRollback, func(s *session, ctx context.Context, r submodules.Request) error {
		return s.Rollback(ctx, submodules.RollbackRequest{Request: r})
	}, recreated("shop-down:2"), deployment("stock", "shop-down:2"))
	require.NoError(t, err)
	require.True(t, down["deployment/web"].Up.After(web.Down), "%+v", down)
	require.NoError(t, m.Purge(t.Context(), submodules.PurgeRequest{Request: n.request(n.ns, "")}))
}
