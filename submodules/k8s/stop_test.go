package k8s

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// TestStop holds that STOP keeps everything but what runs.
func TestStop(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.module()
	ctx := context.Background()
	n.load(m, n.ns, "shop-stop:1", "VERSION=v1")
	pod := `apiVersion: v1
kind: Pod
metadata: {name: bare, labels: {app: bare}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never}]}`
	daemon := `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ds}
spec:
  selector: {matchLabels: {app: ds}}
  template:
    metadata: {labels: {app: ds}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never}]}`
	cron := `apiVersion: batch/v1
kind: CronJob
metadata: {name: cron}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never}]}}}}`
	job := `apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "shop-stop:1", imagePullPolicy: Never, env: [{name: EXIT, value: "%d"}]}]}}}`
	two := strings.Replace(deployment("web", "shop-stop:1"), "replicas: 1", "replicas: 2", 1)
	dir := n.manifests(two, pod, daemon, cron, fmt.Sprintf(job, 0))
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, dir)))
	require.Len(t, n.pods("web"), 2)

	for range 2 { // the second changes nothing
		require.NoError(t, m.Stop(ctx, submodules.StopRequest{Request: n.request(n.ns, dir)}))
		require.Empty(t, n.pods("web"))
		require.Empty(t, n.pods("bare"))
		require.Empty(t, n.pods("ds"))
		require.Equal(t, true, n.field(n.get("batch", "CronJob", "cron"), "spec.suspend"))
		ok, err := m.Alive(ctx, n.request(n.ns, ""))
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.NoError(t, m.Start(ctx, n.request(n.ns, dir)))
	require.Len(t, n.pods("web"), 2)
	require.Len(t, n.pods("bare"), 1)
	require.Len(t, n.pods("ds"), 1)
	require.Equal(t, false, n.field(n.get("batch", "CronJob", "cron"), "spec.suspend"))
	ok, err := m.Healthy(ctx, n.request(n.ns, ""))
	require.NoError(t, err)
	require.True(t, ok, n.log())

	t.Log("a ROLLOUT starts what was stopped")
	require.NoError(t, m.Stop(ctx, submodules.StopRequest{Request: n.request(n.ns, dir)}))
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, dir)))
	require.Len(t, n.pods("ds"), 1)

	t.Log("a changed Job is another one, and a failed one is found")
	old := n.get("batch", "Job", "job").GetUID()
	err = m.Rollout(ctx, n.request(n.ns, n.manifests(strings.Replace(fmt.Sprintf(job, 7), "spec: {", "spec: {backoffLimit: 0, ", 1))))
	require.ErrorIs(t, err, submodules.ErrUnhealthy)
	require.ErrorContains(t, err, "Job/job")
	require.ErrorContains(t, err, "exits with status 7")
	require.NotEqual(t, old, n.get("batch", "Job", "job").GetUID())
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, dir)}))
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
}
