package k8s

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// waiting is an object to wait for.
type waiting struct {
	id      cluster.ID
	ready   bool
	message string
	object  *unstructured.Unstructured
	stale   string    // see staleFailure
	since   time.Time // the first look
}

// waitHealthy returns when all objects are healthy as kstatus defines it, and
// their pods have been up for a while. It fails early where waiting longer
// cannot help, and marks that ErrUnhealthy.
func (s *session) waitHealthy(ctx context.Context, ids []cluster.ID) error {
	deadline := time.Now().Add(s.set.Deadline)
	var all []*waiting
	for _, i := range ids {
		if !cluster.Stateless[i.Kind] {
			all = append(all, &waiting{id: i})
		}
	}
	said := time.Now()
	for pause := 200 * time.Millisecond; ; pause = min(pause*2, time.Second) {
		pending, err := s.poll(ctx, all)
		if err != nil {
			return err
		}
		if len(pending) == 0 {
			// One may have become unready while the others came up.
			for _, w := range all {
				w.ready = false
			}
			if pending, err = s.poll(ctx, all); err != nil {
				return err
			}
			var unstable string
			if len(pending) == 0 {
				if unstable, err = s.unstable(ctx, all); err != nil {
					return err
				}
				if unstable == "" {
					return nil
				}
			}
		}
		if problem, err := s.failing(ctx, all); err != nil || problem != nil {
			if err == nil {
				err = s.unhealthy(ctx, problem.id, problem.text, problem)
			}
			return err
		}
		if time.Now().After(deadline) {
			return s.late(ctx, pending)
		}
		if len(pending) > 0 && time.Since(said) > 15*time.Second {
			said = time.Now()
			s.log("waiting for %s%s: %s", pending[0].id, more(len(pending)-1), pending[0].message)
		}
		if err := cluster.Sleep(ctx, pause); err != nil {
			if len(pending) > 0 {
				return fmt.Errorf("%w while waiting for %s: %s", err, pending[0].id, pending[0].message)
			}
			return err
		}
	}
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// poll looks at the objects that were not ready, and returns those that still are not.
func (s *session) poll(ctx context.Context, all []*waiting) ([]*waiting, error) {
	err := cluster.Each(ctx, len(all), func(ctx context.Context, i int) error {
		w := all[i]
		if w.ready {
			return nil
		}
		o, err := s.c.Get(ctx, w.id)
		if err != nil {
			return err
		}
		w.object = o
		if w.since.IsZero() && o != nil {
			w.staleFailure(o)
		}
		if o == nil {
			return s.unhealthy(ctx, w.id, "it is gone: something deleted it", nil)
		}
		st, msg, err := s.status(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", w.id, err)
		}
		if st == status.CurrentStatus && unfinished(o) {
			st, msg = status.InProgressStatus, "the Job has not completed"
		}
		w.ready, w.message = st == status.CurrentStatus, msg
		if st == status.FailedStatus && w.staleFailure(o) {
			st = status.InProgressStatus
		}
		if st == status.FailedStatus {
			return s.unhealthy(ctx, w.id, msg, &problem{id: w.id, object: o})
		}
		return nil
	})
	var pending []*waiting
	for _, w := range all {
		if !w.ready {
			pending = append(pending, w)
		}
	}
	return pending, err
}

// staleFailure reports whether a Deployment's exceeded deadline belongs to the
// previous revision: the condition stays until the controller has made progress with
// this one. It counts as stale while it is the one found at first, but not forever.
func (w *waiting) staleFailure(o *unstructured.Unstructured) bool {
	first := w.since.IsZero()
	if first {
		w.since = time.Now()
	}
	if o.GetKind() != "Deployment" || time.Since(w.since) > time.Minute {
		return false
	}
	conds, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conds {
		m, _ := c.(map[string]any)
		if m["type"] != "Progressing" || m["status"] != "False" {
			continue
		}
		at := fmt.Sprint(m["lastUpdateTime"])
		if first {
			w.stale = at
		}
		return at == w.stale
	}
	return false
}

// unfinished reports whether an object is a Job whose end a release waits for.
// kstatus takes a Job as ready as soon as it runs, but a release whose migration
// fails is not healthy.
func unfinished(o *unstructured.Unstructured) bool {
	if o.GetKind() != "Job" || o.GetAnnotations()[marks.Wait] == "false" || jobEnded(o) {
		return false
	}
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	return !suspended
}

// status is kstatus, except for a claim that by design waits for its first consumer, and for
// a ReplicationController, of which kstatus knows nothing.
func (s *session) status(ctx context.Context, o *unstructured.Unstructured) (status.Status, string, error) {
	if o.GetKind() == "ReplicationController" && o.GetDeletionTimestamp() == nil {
		return controllerStatus(o)
	}
	res, err := status.Compute(o)
	if err != nil {
		return status.UnknownStatus, "", err
	}
	if o.GetKind() == "PersistentVolumeClaim" && res.Status == status.InProgressStatus {
		class, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName")
		if class != "" {
			sc, err := s.c.Get(ctx, cluster.ID{Group: "storage.k8s.io", Kind: "StorageClass", Name: class})
			if err != nil {
				return status.UnknownStatus, "", err
			}
			if sc != nil && sc.Object["volumeBindingMode"] == "WaitForFirstConsumer" {
				return status.CurrentStatus, "", nil
			}
		}
	}
	return res.Status, res.Message, nil
}

// controllerStatus is the status of a ReplicationController: all of its pods are ready.
func controllerStatus(o *unstructured.Unstructured) (status.Status, string, error) {
	number := func(otherwise int64, fields ...string) int64 {
		if n, ok, err := unstructured.NestedInt64(o.Object, fields...); ok && err == nil {
			return n
		}
		return otherwise
	}
	want := number(1, "spec", "replicas")
	if number(0, "status", "observedGeneration") < o.GetGeneration() {
		return status.InProgressStatus, "its controller has not seen it yet", nil
	}
	if ready := number(0, "status", "readyReplicas"); ready != want || number(0, "status", "replicas") != want {
		return status.InProgressStatus, fmt.Sprintf("ready: %d of %s", ready, metered.Count(int(want), "pod")), nil
	}
	return status.CurrentStatus, "", nil
}

// late returns the error of an exceeded deadline.
func (s *session) late(ctx context.Context, pending []*waiting) error {
	if len(pending) == 0 {
		return submodules.Mark(errors.New("not stable within "+s.set.Deadline.String()), submodules.ErrUnhealthy)
	}
	w := pending[0]
	return s.unhealthy(ctx, w.id, fmt.Sprintf("not ready within %s: %s%s", s.set.Deadline, w.message, more(len(pending)-1)), &problem{id: w.id, object: w.object})
}

// unhealthy makes the error of an object, with the output of its pods.
func (s *session) unhealthy(ctx context.Context, i cluster.ID, text string, p *problem) error {
	if p != nil {
		if said := s.testimony(ctx, p); len(said) > 0 {
			text += "; " + strings.Join(said, "; ")
		}
	}
	return submodules.Mark(fmt.Errorf("%s: %s", i, text), submodules.ErrUnhealthy)
}
