package k8s

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// A stopped object has the annotation marks.Stopped, which says what START restores:
// the replicas of a workload, or whether a Job was suspended before.

// nowhere is a node selector that no node satisfies, for a DaemonSet, which has no
// replicas.
const nowhere = "mender-app.io/stopped"

// stopPatch returns the patch that stops an object, nil if there is nothing to stop.
func stopPatch(o *unstructured.Unstructured) map[string]any {
	if _, ok := o.GetAnnotations()[marks.Stopped]; ok {
		return nil
	}
	var was string
	spec := map[string]any{}
	switch o.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController":
		n, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		if !ok {
			n = 1
		}
		was = fmt.Sprint(n)
		spec["replicas"] = 0
	case "DaemonSet":
		was = "here"
		spec["template"] = map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{nowhere: "true"}}}
	case "Job", "CronJob":
		if o.GetKind() == "Job" && jobEnded(o) {
			return nil
		}
		suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
		was = fmt.Sprint(suspended)
		spec["suspend"] = true
	default:
		return nil
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{marks.Stopped: was}},
		"spec":     spec,
	}
}

// startPatch returns the patch that undoes stopPatch, nil if the object is not
// stopped. Fields that the manifest itself sets (sent, may be nil) stay as applied.
func startPatch(o *unstructured.Unstructured, sent []byte) map[string]any {
	was, ok := o.GetAnnotations()[marks.Stopped]
	if !ok {
		return nil
	}
	var says struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if len(sent) > 0 {
		_ = json.Unmarshal(sent, &says)
	}
	spec := map[string]any{}
	switch o.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController":
		var n int64
		if _, err := fmt.Sscan(was, &n); err == nil && says.Spec["replicas"] == nil {
			spec["replicas"] = n
		}
	case "DaemonSet":
		spec["template"] = map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{nowhere: nil}}}
	case "Job", "CronJob":
		if says.Spec["suspend"] == nil {
			spec["suspend"] = was == "true"
		}
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{marks.Stopped: nil}},
		"spec":     spec,
	}
}

func jobEnded(o *unstructured.Unstructured) bool {
	conds, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conds {
		m, _ := c.(map[string]any)
		if (m["type"] == "Complete" || m["type"] == "Failed") && m["status"] == "True" {
			return true
		}
	}
	return false
}

// unstop undoes a STOP on an object that was just applied.
func (s *session) unstop(ctx context.Context, i cluster.ID, o *unstructured.Unstructured, sent []byte) error {
	patch := startPatch(o, sent)
	if patch == nil {
		return nil
	}
	if err := durable.Point("start.object"); err != nil {
		return err
	}
	return s.c.Patch(ctx, i, patch)
}

// stop scales the application to nothing and returns when its pods are gone.
func (s *session) stop(ctx context.Context, app string) error {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return err
	}
	var pods []cluster.ID
	for _, it := range inv.Items {
		o, err := s.c.Get(ctx, it.ID)
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		if it.Kind == "Pod" && it.Group == "" {
			// It cannot be scaled; START makes it again from the manifest.
			if err := s.c.Remove(ctx, it.ID, o.GetUID()); err != nil {
				return err
			}
			pods = append(pods, it.ID)
			continue
		}
		if err := s.stopOne(ctx, it.ID, o); err != nil {
			return err
		}
		if it.Kind == "CronJob" {
			if err := s.eachChild(ctx, o, func(i cluster.ID, job *unstructured.Unstructured) error { return s.stopOne(ctx, i, job) }); err != nil {
				return err
			}
		}
	}
	if err := durable.Point("stop.stopped"); err != nil {
		return err
	}
	if err := s.awaitNoPods(ctx, inv); err != nil {
		return err
	}
	_, err = s.awaitGone(ctx, pods, nil)
	return err
}

func (s *session) stopOne(ctx context.Context, i cluster.ID, o *unstructured.Unstructured) error {
	patch := stopPatch(o)
	if patch == nil {
		return nil
	}
	if err := durable.Point("stop.object"); err != nil {
		return err
	}
	return s.c.Patch(ctx, i, patch)
}

// eachChild calls f for the Jobs of a CronJob.
func (s *session) eachChild(ctx context.Context, o *unstructured.Unstructured, f func(cluster.ID, *unstructured.Unstructured) error) error {
	jobs, err := s.c.List(ctx, "batch", "Job", o.GetNamespace(), "")
	if err != nil {
		return err
	}
	for n := range jobs {
		for _, ref := range jobs[n].GetOwnerReferences() {
			if ref.UID == o.GetUID() {
				if err := f(cluster.ID{Group: "batch", Kind: "Job", Namespace: o.GetNamespace(), Name: jobs[n].GetName()}, &jobs[n]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// awaitNoPods waits until the application's workloads have no running pod.
func (s *session) awaitNoPods(ctx context.Context, inv *inventory) error {
	var ids []cluster.ID
	for _, it := range inv.Items {
		if marks.IsService(it.Kind) && it.Kind != "Pod" {
			ids = append(ids, it.ID)
		}
	}
	for n := 0; ; n++ {
		left, err := s.running(ctx, ids, func(p *pod) bool { return p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" })
		if err != nil {
			return err
		}
		if left == "" {
			return nil
		}
		if n == 60 {
			s.log("waiting for pod %s to end", left)
		}
		if err := cluster.Sleep(ctx, s.pause()); err != nil {
			return fmt.Errorf("pod %s does not end: %w", left, err)
		}
	}
}

// running names a pod of the workloads that match accepts.
func (s *session) running(ctx context.Context, ids []cluster.ID, match func(*pod) bool) (string, error) {
	v := s.survey()
	for _, i := range ids {
		if !marks.IsService(i.Kind) {
			continue
		}
		o, err := s.c.Get(ctx, i)
		if err != nil {
			return "", err
		}
		if o == nil {
			continue
		}
		pods, err := v.in(ctx, i.Namespace)
		if err != nil {
			return "", err
		}
		owners := map[types.UID]bool{o.GetUID(): true}
		if i.Kind == "Deployment" {
			sets, err := v.replicaSets(ctx, i.Namespace)
			if err != nil {
				return "", err
			}
			for n := range sets {
				for _, ref := range sets[n].GetOwnerReferences() {
					if ref.UID == o.GetUID() {
						owners[sets[n].GetUID()] = true
					}
				}
			}
		}
		for n := range pods {
			p := &pods[n]
			for _, ref := range p.Metadata.OwnerReferences {
				if owners[ref.UID] && match(p) {
					return p.Metadata.Name, nil
				}
			}
		}
	}
	return "", nil
}

// start undoes stop, and returns when the application is healthy. It rolls out the release
// again if it was rolled out with changes other than the requested ones.
func (s *session) start(ctx context.Context, app, dir string) error {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return err
	}
	if len(inv.Items) == 0 {
		return submodules.Mark(fmt.Errorf("the application %s is not installed in this cluster", app), submodules.ErrNotFound)
	}
	if inv.Changes != changesOf(s.req).Fingerprint() {
		return s.rollout(ctx, s.req, true)
	}
	var ids []cluster.ID
	podsGone := false
	for _, it := range inv.Items {
		if it.Retained {
			continue
		}
		o, err := s.c.Get(ctx, it.ID)
		if err != nil {
			return err
		}
		if o == nil && it.Kind == "Pod" && it.Group == "" {
			podsGone = true
			ids = append(ids, it.ID)
			continue
		}
		if o == nil {
			return fmt.Errorf("%s is gone: something deleted it; install the release again", it.ID)
		}
		ids = append(ids, it.ID)
		if err := s.unstop(ctx, it.ID, o, nil); err != nil {
			return err
		}
		if it.Kind == "CronJob" {
			if err := s.eachChild(ctx, o, func(i cluster.ID, job *unstructured.Unstructured) error { return s.unstop(ctx, i, job, nil) }); err != nil {
				return err
			}
		}
	}
	if podsGone {
		if err := s.startPods(ctx, app, dir, inv); err != nil {
			return err
		}
	}
	if err := durable.Point("start.started"); err != nil {
		return err
	}
	return s.waitHealthy(ctx, ids)
}

// startPods recreates the bare Pods that STOP deleted.
func (s *session) startPods(ctx context.Context, app, dir string, inv *inventory) error {
	r, err := s.readRelease(ctx, app, dir, false)
	if err != nil {
		return err
	}
	if err := s.checkImages(ctx, r); err != nil {
		return err
	}
	for _, p := range r.objects {
		if p.Kind == "Pod" && p.Group() == "" && inv.find(p.id) != nil {
			if err := s.applyOne(ctx, r, p, inv); err != nil {
				return err
			}
		}
	}
	return nil
}
