package k8s

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// state has the facts for the answers of ALIVE and HEALTHY.
type state struct {
	alive, healthy bool
	why            string // the first thing that is wrong
	workloads      []seen
}

// seen is a workload with its pods of the current revision.
type seen struct {
	*waiting // its object is nil if it is gone
	stopped  bool
	wanted   int64 // how many pods it should have
	pods     []pod
}

// inspect looks at all objects of the application.
func (s *session) inspect(ctx context.Context, app string) (state, error) {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return state{}, err
	}
	st := state{alive: true, healthy: true}
	ill := func(alive bool, format string, args ...any) {
		st.alive, st.healthy = st.alive && alive, false
		if st.why == "" {
			st.why = fmt.Sprintf(format, args...)
		}
	}
	n := 0
	var all []*waiting
	for _, it := range inv.Items {
		if it.Retained {
			continue
		}
		n++
		o, err := s.c.Get(ctx, it.ID)
		if err != nil {
			return state{}, err
		}
		if o == nil {
			ill(!marks.IsService(it.Kind), "%s is gone", it.ID)
			if marks.IsService(it.Kind) {
				st.workloads = append(st.workloads, seen{waiting: &waiting{id: it.ID}})
			}
			continue
		}
		if _, stopped := o.GetAnnotations()[marks.Stopped]; stopped {
			ill(false, "%s is stopped", it.ID)
			if marks.IsService(it.Kind) {
				st.workloads = append(st.workloads, seen{waiting: &waiting{id: it.ID, object: o}, stopped: true})
			}
			continue
		}
		if cluster.Stateless[it.Kind] {
			continue
		}
		w := &waiting{id: it.ID, object: o}
		res, msg, err := s.status(ctx, o)
		if err != nil {
			return state{}, fmt.Errorf("%s: %w", it.ID, err)
		}
		if res.String() != "Current" {
			ill(true, "%s: %s", it.ID, msg)
		}
		all = append(all, w)
	}
	if n == 0 {
		ill(false, "it is not installed in this cluster")
		return st, nil
	}
	v := s.survey()
	for _, w := range all {
		if !marks.IsService(w.id.Kind) {
			continue
		}
		pods, err := v.of(ctx, w.object)
		if err != nil {
			return state{}, err
		}
		up := int64(0)
		for i := range pods {
			if pods[i].Status.Phase == "Running" && allRunning(&pods[i]) || pods[i].Status.Phase == "Succeeded" {
				up++
			}
			if p := s.hopeless(w, &pods[i]); p != nil {
				ill(true, "%s: %s", w.id, p.text)
			}
		}
		want := wantedPods(w.object)
		if up < want {
			ill(false, "%s: running: %d of %s", w.id, up, metered.Count(int(want), "pod"))
		}
		st.workloads = append(st.workloads, seen{waiting: w, wanted: want, pods: pods})
	}
	return st, nil
}

func allRunning(p *pod) bool {
	for _, c := range p.Status.Containers {
		if c.State.Running == nil {
			return false
		}
	}
	return true
}

// wantedPods returns how many pods a workload should have; 0 for a Job that has ended.
func wantedPods(o *unstructured.Unstructured) int64 {
	switch o.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController":
		if n, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok {
			return n
		}
		return 1
	case "DaemonSet":
		n, _, _ := unstructured.NestedInt64(o.Object, "status", "desiredNumberScheduled")
		return n
	case "Pod":
		return 1
	}
	return 0
}
