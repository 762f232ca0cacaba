package k8s

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

var begin = time.Date(2026, 11, 24, 7, 13, 39, 0, time.UTC)

// at is a time so many milliseconds after the first.
func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

// one is a pod of deployment/web, with a condition that changed at a whole second.
func one(uid string, ready bool, since int) *unstructured.Unstructured {
	status := map[bool]string{true: "True", false: "False"}[ready]
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{
			"name": "web-5d8-" + uid, "uid": uid, "labels": map[string]any{"pod-template-hash": "5d8"},
			"ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "name": "web-5d8", "controller": true}},
		},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": status, "lastTransitionTime": at(since * 1000).Format(time.RFC3339)},
		}},
	}}
}

// deleted is a pod that was to be deleted at a time, with 30 s to end.
func deleted(o *unstructured.Unstructured, ms int) *unstructured.Unstructured {
	meta := o.Object["metadata"].(map[string]any)
	meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = at(ms+30000).Format(time.RFC3339), int64(30)
	return o
}

// listed lists pods, and follows nothing.
type listed []*unstructured.Unstructured

func (l listed) EachOf(_ context.Context, _, _, _, _ string, f func(*unstructured.Unstructured)) error {
	for _, o := range l {
		f(o)
	}
	return nil
}

func (l listed) Follow(ctx context.Context, _, _, _ string, _ func(*unstructured.Unstructured, bool)) error {
	<-ctx.Done()
	return nil
}

func TestDowntimes(t *testing.T) {
	type change struct {
		o    *unstructured.Unstructured
		gone bool
		seen int // milliseconds
	}
	for _, c := range []struct {
		name    string
		before  listed
		changes []change
		after   listed
		failed  bool
		want    []submodules.Downtime
	}{
		{
			name:   "replaced, one after the other",
			before: listed{one("a", true, -10)},
			changes: []change{
				{deleted(one("a", true, -10), 1000), false, 1200},
				{deleted(one("a", true, -10), 1000), true, 2000},
				{one("b", false, 2), false, 2100},
				{one("b", true, 3), false, 3400},
			},
			after: listed{one("b", true, 3)},
			want:  []submodules.Downtime{{Service: "deployment/web", Down: at(1200), Up: at(3400)}},
		},
		{
			name:   "what was seen late, the server's time bounds",
			before: listed{one("a", true, -10)},
			changes: []change{
				{deleted(one("a", true, -10), 1000), false, 9000},
				{one("b", true, 3), false, 9000},
			},
			after: listed{one("b", true, 3)},
			want:  []submodules.Downtime{{Service: "deployment/web", Down: at(2000), Up: at(4000)}},
		},
		{
			name:   "one takes over",
			before: listed{one("a", true, -10)},
			changes: []change{
				{one("b", true, 1), false, 1500},
				{deleted(one("a", true, -10), 2000), false, 2200},
			},
			after: listed{one("b", true, 1)},
		},
		{
			name:   "it goes on",
			before: listed{one("a", true, -10)},
			after:  listed{one("a", true, -10)},
		},
		{
			name:    "it goes down",
			before:  listed{one("a", true, -10)},
			changes: []change{{one("a", false, 1), false, 1100}},
			after:   listed{one("a", false, 1)},
			failed:  true,
			want:    []submodules.Downtime{{Service: "deployment/web", Down: at(1100)}},
		},
		{
			name:    "the new release does not have it",
			before:  listed{one("a", true, -10)},
			changes: []change{{one("a", true, -10), true, 1100}},
		},
		{
			name:    "it was down",
			before:  listed{one("a", false, -10)},
			changes: []change{{one("a", true, 1), false, 1100}},
			after:   listed{one("a", true, 1)},
			want:    []submodules.Downtime{{Service: "deployment/web", Up: at(1100)}},
		},
		{
			name:   "twice",
			before: listed{one("a", true, -10)},
			changes: []change{
				{one("a", false, 1), false, 1100},
				{one("a", true, 2), false, 2100},
				{one("a", false, 3), false, 3100},
				{one("a", true, 4), false, 4100},
			},
			after: listed{one("a", true, 4)},
			want:  []submodules.Downtime{{Service: "deployment/web", Down: at(1100), Up: at(2100)}, {Service: "deployment/web", Down: at(3100), Up: at(4100)}},
		},
		{
			name:   "nobody saw when it was gone",
			before: listed{one("a", true, -10)},
			failed: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := beginWatch(t.Context(), c.before, []cluster.ID{{Kind: "Deployment", Namespace: "n", Name: "web"}, {Kind: "Job", Name: "once"}}, t.Logf)
			w.begun = begin
			for _, ch := range c.changes {
				w.note(ch.o, ch.gone, at(ch.seen))
			}
			w.pods = c.after
			require.Equal(t, c.want, w.End(t.Context(), c.failed))
		})
	}
}

func TestServiceOf(t *testing.T) {
	pod := func(name string, labels map[string]any, owners ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "labels": labels, "ownerReferences": owners}}}
	}
	owner := func(kind, name string, controller bool) any {
		return map[string]any{"kind": kind, "name": name, "controller": controller}
	}
	require.Equal(t, "deployment/web-1", serviceOf(pod("web-1-5d8-x", map[string]any{"pod-template-hash": "5d8"}, owner("ReplicaSet", "web-1-5d8", true))))
	require.Equal(t, "replicaset/web", serviceOf(pod("web-x", nil, owner("ReplicaSet", "web", true))))
	require.Equal(t, "statefulset/db", serviceOf(pod("db-0", nil, owner("StatefulSet", "db", true))))
	require.Equal(t, "pod/alone", serviceOf(pod("alone", nil, owner("ConfigMap", "c", false))))
}
