package k8s

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// problem is an object in trouble, with the pod and container that cause it, if
// known.
type problem struct {
	id        cluster.ID
	text      string
	object    *unstructured.Unstructured
	pod       *pod
	container string
	previous  bool // the log of the container's previous run has the reason
}

// failing looks for pods that will never come up.
func (s *session) failing(ctx context.Context, all []*waiting) (*problem, error) {
	v := s.survey()
	for _, w := range all {
		if w.ready || w.object == nil || !marks.IsService(w.object.GetKind()) {
			continue
		}
		pods, err := v.of(ctx, w.object)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			if p := s.hopeless(w, &pods[i]); p != nil {
				return p, nil
			}
		}
		if w.object.GetKind() == "StatefulSet" {
			if err := s.unblock(ctx, v, w.object); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// hopeless reports whether a pod will never come up, and why.
func (s *session) hopeless(w *waiting, p *pod) *problem {
	age := time.Since(p.Metadata.CreationTimestamp)
	for _, c := range p.containers() {
		pr := &problem{id: w.id, object: w.object, pod: p, container: c.Name}
		say := func(format string, args ...any) *problem {
			pr.text = fmt.Sprintf("container %s of pod %s: ", c.Name, p.Metadata.Name) + fmt.Sprintf(format, args...)
			return pr
		}
		if wait := c.State.Waiting; wait != nil {
			switch wait.Reason {
			case "ErrImageNeverPull", "InvalidImageName":
				return say("%s: %s", wait.Reason, wait.Message)
			case "ImagePullBackOff":
				if age > 30*time.Second {
					return say("%s: %s", wait.Reason, wait.Message)
				}
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				// A volume or a ConfigMap may appear a moment later.
				if age > 20*time.Second {
					return say("%s: %s", wait.Reason, wait.Message)
				}
			}
		}
		// A Job counts its own failures.
		if w.object.GetKind() != "Job" && c.RestartCount >= s.set.Restarts && !c.Ready {
			if c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" || c.RestartCount > s.set.Restarts {
				pr.previous = c.State.Running != nil
				how := ""
				if t := c.LastState.Terminated; t != nil {
					how = fmt.Sprintf(", the last time with status %d (%s)", t.ExitCode, t.Reason)
				}
				return say("CrashLoopBackOff: it ended %s%s", metered.Count(int(c.RestartCount+1), "time"), how)
			}
		}
	}
	return nil
}

// unblock deletes a StatefulSet's pod of another revision that is not ready. The
// controller replaces pods in order and would wait for it forever, even if the
// revision that broke it is no longer wanted (kubernetes/kubernetes#67250).
func (s *session) unblock(ctx context.Context, v *survey, o *unstructured.Unstructured) error {
	if policy, _, _ := unstructured.NestedString(o.Object, "spec", "podManagementPolicy"); policy == "Parallel" {
		return nil
	}
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	rev, _, _ := unstructured.NestedString(o.Object, "status", "updateRevision")
	if observed != o.GetGeneration() || rev == "" {
		return nil
	}
	pods, err := v.in(ctx, o.GetNamespace())
	if err != nil {
		return err
	}
	for i := range pods {
		p := &pods[i]
		ready, _, _ := p.condition("Ready")
		if !p.ownedBy(o.GetUID()) || ready || p.Metadata.DeletionTimestamp != nil || p.Metadata.Labels["controller-revision-hash"] == rev {
			continue
		}
		s.log("delete pod %s: it is not ready, belongs to another revision, and blocks the StatefulSet", p.Metadata.Name)
		if err := s.c.Remove(ctx, cluster.ID{Kind: "Pod", Namespace: o.GetNamespace(), Name: p.Metadata.Name}, p.Metadata.UID); err != nil {
			return err
		}
	}
	return nil
}

// unstable names a pod that has not run long enough to count as healthy: without a
// readiness probe a container counts as ready the moment it starts.
func (s *session) unstable(ctx context.Context, all []*waiting) (string, error) {
	v := s.survey()
	for _, w := range all {
		if w.object == nil || !marks.IsService(w.object.GetKind()) || w.object.GetKind() == "Job" {
			continue
		}
		pods, err := v.of(ctx, w.object)
		if err != nil {
			return "", err
		}
		for _, p := range pods {
			probed := map[string]bool{}
			for _, c := range p.Spec.Containers {
				probed[c.Name] = c.ReadinessProbe != nil
			}
			for _, c := range p.Status.Containers {
				if probed[c.Name] || c.State.Running == nil {
					continue
				}
				// A start in the future comes from a clock that was set back.
				if runs := time.Since(c.State.Running.StartedAt); runs >= 0 && runs < s.set.Stable {
					return p.Metadata.Name, nil
				}
			}
		}
	}
	return "", nil
}

// logLines is how many lines of a log are shown, errorLines how many of them go into
// the error, and maxSaid how much of each, in bytes.
const (
	logLines   = 20
	errorLines = 3
	maxSaid    = 400
)

// testimony collects the last log lines and events of a broken object's pods. All of
// them go to the log, the most useful ones into the error.
func (s *session) testimony(ctx context.Context, pr *problem) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	var said []string
	if pr.pod == nil && pr.object != nil && marks.IsService(pr.object.GetKind()) {
		pr.pod, pr.container = s.worst(ctx, pr.object)
	}
	i := pr.id
	if p := pr.pod; p != nil {
		i = cluster.ID{Kind: "Pod", Namespace: p.Metadata.Namespace, Name: p.Metadata.Name}
		if ok, reason, msg := p.condition("PodScheduled"); !ok && reason != "" {
			said = append(said, fmt.Sprintf("pod %s: %s: %s", p.Metadata.Name, reason, msg))
		}
		if pr.container != "" {
			lines, err := s.c.PodLog(ctx, p.Metadata.Namespace, p.Metadata.Name, pr.container, logLines, pr.previous)
			if err == nil && len(lines) > 0 && lines[0] != "" {
				for _, l := range lines {
					s.log("%s/%s: %s", p.Metadata.Name, pr.container, clip.Line(l, maxSaid))
				}
				said = append(said, "log: "+clip.Line(strings.Join(lines[max(0, len(lines)-errorLines):], " | "), maxSaid))
			}
		}
	}
	if events := s.events(ctx, i); len(events) > 0 {
		for _, e := range events {
			s.log("event of %s: %s", i, e)
		}
		said = append(said, "event: "+events[len(events)-1])
	}
	return said
}

// worst picks the pod and container that explain most.
func (s *session) worst(ctx context.Context, o *unstructured.Unstructured) (*pod, string) {
	pods, err := s.survey().of(ctx, o)
	if err != nil {
		return nil, ""
	}
	for i := range pods {
		p := &pods[i]
		if ok, _, _ := p.condition("Ready"); ok {
			continue
		}
		for _, c := range p.containers() {
			if !c.Ready {
				return p, c.Name
			}
		}
		return p, ""
	}
	return nil, ""
}

// events returns the warnings about an object, oldest first.
func (s *session) events(ctx context.Context, i cluster.ID) []string {
	list, err := s.c.List(ctx, "", "Event", i.Namespace, "")
	if err != nil {
		return nil
	}
	sort.SliceStable(list, func(a, b int) bool { return eventTime(&list[a]) < eventTime(&list[b]) })
	var out []string
	for k := range list {
		e := list[k].Object
		kind, _, _ := unstructured.NestedString(e, "involvedObject", "kind")
		name, _, _ := unstructured.NestedString(e, "involvedObject", "name")
		if kind != i.Kind || name != i.Name || e["type"] != "Warning" {
			continue
		}
		out = append(out, clip.Line(fmt.Sprintf("%v: %v", e["reason"], e["message"]), maxSaid))
	}
	return out[max(0, len(out)-5):]
}

func eventTime(e *unstructured.Unstructured) string {
	for _, k := range []string{"lastTimestamp", "eventTime"} {
		if t, ok := e.Object[k].(string); ok && t != "" {
			return t
		}
	}
	return e.GetCreationTimestamp().UTC().Format(time.RFC3339)
}
