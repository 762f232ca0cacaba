package k8s

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// repairable is an application that runs, and the files of its image.
type repairable struct {
	*node
	m   caller
	c   submodules.Component
	dir string // its manifests
	ref string
}

func newRepairable(t *testing.T) *repairable {
	n := newNode(t)
	r := &repairable{node: n, m: n.module(), ref: "shop-repair-" + n.ns + ":1"}
	r.c = n.load(r.m, n.ns, r.ref, "VERSION=v1", n.ns)
	r.dir = n.manifests(deployment("web", r.ref))
	require.NoError(t, r.m.Rollout(context.Background(), r.call(n.ns, r.dir)))
	return r
}

func (r *repairable) call(app, dir string) submodules.Request {
	req := r.request(app, dir)
	req.Components = []submodules.Component{r.c}
	return req
}

func (r *repairable) verify() []string {
	r.t.Helper()
	problems, err := r.m.Verify(context.Background(), r.call(r.ns, ""))
	require.NoError(r.t, err)
	return problems
}

// emptyFile takes away what is in the file etc/env of the image, as it is
// unpacked: what a power cut does to files that were not synced.
func (r *repairable) emptyFile() {
	r.t.Helper()
	require.NoError(r.t, os.Truncate(filepath.Join(r.Unpacked(r.t, r.c.DiffIDs), "etc/env"), 0))
}

// loseBlob takes away the blob of the layer.
func (r *repairable) loseBlob() {
	r.t.Helper()
	require.NoError(r.t, os.Truncate(r.Blob(r.c.DiffIDs[1]), 0))
}

// source is a directory with the image, as an artifact gives it.
func (r *repairable) source() string {
	dir := r.t.TempDir()
	img := r.Image(r.t, "probe:any", nil, "VERSION=v1", r.ns)
	require.NoError(r.t, os.WriteFile(filepath.Join(dir, "image"), img.Archive, 0o600))
	return dir
}

// again is the ROLLOUT that the caller makes after a repair.
func (r *repairable) again(apps []string) {
	r.t.Helper()
	require.Equal(r.t, []string{r.ns}, apps)
	require.NoError(r.t, r.m.Rollout(context.Background(), r.call(r.ns, r.dir)))
	require.Equal(r.t, "v1", r.answer("web"))
	require.Empty(r.t, r.verify())
}

// TestRepair: an image that runs is made whole.
func TestRepair(t *testing.T) {
	t.Parallel()
	r := newRepairable(t)
	ctx := context.Background()
	require.Empty(t, r.verify())

	t.Log("a blob alone: nothing is stopped")
	r.loseBlob()
	require.Contains(t, fmt.Sprint(r.verify()), "its blob")
	pod := r.pods("web")[0].Metadata.UID
	req := submodules.RepairRequest{Request: r.call(r.ns, ""), Work: t.TempDir()}
	_, err := r.m.Repair(ctx, req)
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "mender-app verify --repair --from")
	req.Source = r.source()
	apps, err := r.m.Repair(ctx, req)
	require.NoError(t, err)
	require.Empty(t, apps)
	require.Empty(t, r.verify())
	require.Equal(t, pod, r.pods("web")[0].Metadata.UID)

	t.Log("a file that was unpacked: the application is stopped")
	r.emptyFile()
	require.Contains(t, fmt.Sprint(r.verify()), "etc/env has 0 bytes")
	apps, err = r.m.Repair(ctx, submodules.RepairRequest{Request: r.call(r.ns, ""), Work: t.TempDir()})
	require.NoError(t, err)
	require.Empty(t, r.pods("web"))
	r.again(apps)

	t.Log("a pod that is no application's keeps it from being repaired")
	r.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stray", "namespace": %q, "labels": {"app": "stray"}},
		"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never"}]}}`, r.ns, r.ref))
	require.Contains(t, r.Kubectl("-n", r.ns, "wait", "--for=condition=Ready", "pod/stray", "--timeout=180s"), "condition met")
	r.emptyFile()
	_, err = r.m.Repair(ctx, submodules.RepairRequest{Request: r.call(r.ns, ""), Work: t.TempDir()})
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "pod stray in "+r.ns+" belongs to no application")
	require.Equal(t, "v1", r.answer("web"))
	require.Contains(t, r.Kubectl("-n", r.ns, "delete", "pod", "stray", "--timeout=180s"), "deleted")
	apps, err = r.m.Repair(ctx, submodules.RepairRequest{Request: r.call(r.ns, ""), Work: t.TempDir()})
	require.NoError(t, err)
	r.again(apps)

	t.Log("what a load that a power cut ended left is loaded again")
	require.NoError(t, r.m.Stop(ctx, submodules.StopRequest{Request: r.call(r.ns, r.dir)}))
	r.emptyFile()
	load := submodules.LoadRequest{Request: r.call(r.ns, ""), URL: r.ref, Path: filepath.Join(r.source(), "image"), Distrust: true}
	require.NoError(t, r.m.Load(ctx, load))
	require.Empty(t, r.verify())
	require.NoError(t, r.m.Start(ctx, r.call(r.ns, r.dir)))
	require.Equal(t, "v1", r.answer("web"))
}

// TestRepairKilled kills REPAIR at each of its steps: REPAIR with the option finish
// then ends it, and the application comes back.
func TestRepairKilled(t *testing.T) {
	t.Parallel()
	r := newRepairable(t)
	ctx := context.Background()
	components := filepath.Join(t.TempDir(), "components.json")
	require.NoError(t, os.WriteFile(components, fmt.Appendf(nil, `[{"type":"image","url":%q,"digest":%q,"diff_ids":[%q,%q]}]`, r.ref, r.c.Digest, r.c.DiffIDs[0], r.c.DiffIDs[1]), 0o600))
	for _, point := range []string{"repair.planned:1", "repair.stopped:1", "repair.removed:1", "repair.dropped:1", "repair.loaded:1"} {
		t.Run(point, func(t *testing.T) {
			r.emptyFile()
			r.loseBlob()
			dir := t.TempDir()
			r.killedWith([]string{submodules.EnvComponents + "=" + components}, point, nil, "REPAIR", r.ns, dir, r.source())
			req := submodules.RepairRequest{Request: r.call(r.ns, ""), Work: dir, Finish: true}
			apps, err := r.m.Repair(ctx, req)
			require.NoError(t, err)
			r.again(apps)
		})
	}
}
