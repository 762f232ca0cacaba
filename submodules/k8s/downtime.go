package k8s

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// podSource is what tells of pods; *cluster.Cluster implements it.
type podSource interface {
	// EachOf calls f for each object of a kind in a namespace.
	EachOf(ctx context.Context, group, kind, namespace, selector string, f func(*unstructured.Unstructured)) error
	// Follow does the same, and calls f again when an object changes or is gone, until
	// the stream ends.
	Follow(ctx context.Context, group, kind, namespace string, f func(o *unstructured.Unstructured, gone bool)) error
}

// downtimeWatch notes when pods are ready. Nothing says that of a pod that is gone, so it has to
// be noted when it happens.
type downtimeWatch struct {
	pods       podSource
	services   map[string]bool // the workloads
	namespaces []string
	begun      time.Time
	stop       context.CancelFunc
	following  sync.WaitGroup
	log        func(format string, args ...any)

	mu    sync.Mutex
	ready map[types.UID]*watchedPod
	spans int // in all
}

// watchedPod is a pod of one of the workloads.
type watchedPod struct {
	service string
	spans   []submodules.Span
	listed  bool // when the watch ended
}

const (
	// maxSpans bounds the record.
	maxSpans = 1000
	// again is the pause before the next attempt after a stream ended: client-go ends
	// each one after a while.
	again = 200 * time.Millisecond
)

// beginWatch begins to watch the pods of those objects that are services. Jobs are left out:
// they end.
func beginWatch(ctx context.Context, pods podSource, objects []cluster.ID, log func(string, ...any)) *downtimeWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &downtimeWatch{pods: pods, services: map[string]bool{}, stop: cancel, log: log, ready: map[types.UID]*watchedPod{}}
	for _, id := range objects {
		if !marks.IsService(id.Kind) || id.Kind == "Job" {
			continue
		}
		w.services[marks.ServiceName(id.Kind, id.Name)] = true
		if !slices.Contains(w.namespaces, id.Namespace) {
			w.namespaces = append(w.namespaces, id.Namespace)
		}
	}
	for _, ns := range w.namespaces {
		if err := pods.EachOf(ctx, "", "Pod", ns, "", func(o *unstructured.Unstructured) { w.note(o, false, time.Now()) }); err != nil {
			log("downtimes may not be known: %v", err)
		}
	}
	w.begun = time.Now()
	for _, ns := range w.namespaces {
		w.following.Go(func() {
			for ctx.Err() == nil {
				_ = pods.Follow(ctx, "", "Pod", ns, func(o *unstructured.Unstructured, gone bool) { w.note(o, gone, time.Now()) })
				_ = cluster.Sleep(ctx, again)
			}
		})
	}
	return w
}

// note notes what the API server says of a pod at a time.
func (w *downtimeWatch) note(o *unstructured.Unstructured, gone bool, now time.Time) {
	name := serviceOf(o)
	if !w.services[name] {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.ready[o.GetUID()]
	if p == nil {
		p = &watchedPod{service: name}
		w.ready[o.GetUID()] = p
	}
	p.listed = true
	ready, at := readiness(o)
	was := p.isReady()
	switch at = exact(at, now); {
	case ready && !gone && !was && w.spans < maxSpans:
		p.spans = append(p.spans, submodules.Span{From: at})
		w.spans++
	case was && !ready:
		p.end(at)
	case was && gone:
		p.end(now)
	}
}

func (p *watchedPod) isReady() bool { return len(p.spans) > 0 && p.spans[len(p.spans)-1].To.IsZero() }

func (p *watchedPod) end(at time.Time) {
	last := &p.spans[len(p.spans)-1]
	if last.To = at; at.Before(last.From) {
		last.To = last.From
	}
}

// serviceOf names the workload of a pod. A Deployment has its pods through a ReplicaSet,
// whose name ends with the hash of the pods' template.
func serviceOf(o *unstructured.Unstructured) string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		if hash := o.GetLabels()["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
			return marks.ServiceName("Deployment", strings.TrimSuffix(owner.Name, "-"+hash))
		}
		return marks.ServiceName(owner.Kind, owner.Name)
	}
	return marks.ServiceName("Pod", o.GetName())
}

// readiness reports whether a pod is ready, and since when, in whole seconds; zero if
// the API server does not say. A pod that is being deleted gets no more requests.
func readiness(o *unstructured.Unstructured) (ready bool, since time.Time) {
	if deleted := o.GetDeletionTimestamp(); deleted != nil {
		grace := o.GetDeletionGracePeriodSeconds()
		if grace == nil {
			return false, time.Time{}
		}
		return false, deleted.Add(-time.Duration(*grace) * time.Second)
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if m["type"] != "Ready" {
			continue
		}
		text, _ := m["lastTransitionTime"].(string)
		since, _ = time.Parse(time.RFC3339, text)
		return m["status"] == "True", since
	}
	return false, time.Time{}
}

// exact returns the time of a change from the API server's whole seconds, at, and the
// time when it was seen.
func exact(at, seen time.Time) time.Time {
	switch end := at.Add(time.Second); {
	case at.IsZero():
		return seen
	case seen.Before(at):
		return at
	case seen.After(end):
		return end
	}
	return seen
}

// Close ends the watch. That of nil was never begun.
func (w *downtimeWatch) Close() {
	if w == nil {
		return
	}
	w.stop()
	w.following.Wait()
}

// End ends the watch. It tells of the workloads of which no pod was ready for a time, or
// one is ready since it began; with failed also of those of which none is ready now.
func (w *downtimeWatch) End(ctx context.Context, failed bool) (list []submodules.Downtime) {
	if w == nil {
		return nil
	}
	w.Close()
	w.mu.Lock()
	for _, p := range w.ready {
		p.listed = false
	}
	w.mu.Unlock()
	for _, ns := range w.namespaces {
		if err := w.pods.EachOf(ctx, "", "Pod", ns, "", func(o *unstructured.Unstructured) { w.note(o, false, time.Now()) }); err != nil {
			w.log("downtimes are not known: %v", err)
			return nil
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	spans, left := map[string][]submodules.Span{}, map[string]bool{}
	for _, p := range w.ready {
		spans[p.service] = append(spans[p.service], p.spans...)
		left[p.service] = left[p.service] || p.isReady() && !p.listed // nobody saw its end
	}
	maps.DeleteFunc(spans, func(name string, _ []submodules.Span) bool { return left[name] })
	return submodules.Gaps(spans, w.begun, failed)
}
