package k8s

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// pod has the fields of a Pod that we need.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               types.UID         `json:"uid"`
		Labels            map[string]string `json:"labels"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
		OwnerReferences   []struct {
			UID types.UID `json:"uid"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Name           string         `json:"name"`
			Image          string         `json:"image"`
			ReadinessProbe map[string]any `json:"readinessProbe"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase"`
		Reason     string            `json:"reason"`
		Message    string            `json:"message"`
		Init       []containerStatus `json:"initContainerStatuses"`
		Containers []containerStatus `json:"containerStatuses"`
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

type containerStatus struct {
	Name         string         `json:"name"`
	RestartCount int64          `json:"restartCount"`
	Ready        bool           `json:"ready"`
	State        containerState `json:"state"`
	LastState    containerState `json:"lastState"`
}

type containerState struct {
	Waiting *struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"waiting"`
	Running *struct {
		StartedAt time.Time `json:"startedAt"`
	} `json:"running"`
	Terminated *terminated `json:"terminated"`
}

type terminated struct {
	ExitCode   int64     `json:"exitCode"`
	Reason     string    `json:"reason"`
	FinishedAt time.Time `json:"finishedAt"`
}

func (p *pod) condition(kind string) (ok bool, reason, message string) {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == "True", c.Reason, c.Message
		}
	}
	return false, "", ""
}

// containers returns the init containers, then the others.
func (p *pod) containers() []containerStatus {
	return slices.Concat(p.Status.Init, p.Status.Containers)
}

func (p *pod) ownedBy(uid types.UID) bool {
	for _, o := range p.Metadata.OwnerReferences {
		if o.UID == uid {
			return true
		}
	}
	return false
}

// survey holds the pods and ReplicaSets of the namespaces, each read once.
type survey struct {
	s    *session
	pods map[string][]pod
	sets map[string][]unstructured.Unstructured
}

func (s *session) survey() *survey {
	return &survey{s: s, pods: map[string][]pod{}, sets: map[string][]unstructured.Unstructured{}}
}

func (v *survey) in(ctx context.Context, ns string) ([]pod, error) {
	if pods, ok := v.pods[ns]; ok {
		return pods, nil
	}
	list, err := v.s.c.List(ctx, "", "Pod", ns, "")
	if err != nil {
		return nil, err
	}
	pods := make([]pod, 0, len(list))
	for i := range list {
		var p pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, &p); err != nil {
			return nil, fmt.Errorf("pod %s: %w", list[i].GetName(), err)
		}
		pods = append(pods, p)
	}
	v.pods[ns] = pods
	return pods, nil
}

// of returns the pods of a workload's current revision, without those of older ones
// that are ending.
func (v *survey) of(ctx context.Context, o *unstructured.Unstructured) ([]pod, error) {
	// Until the controller has seen the change, the revision is the old one.
	if seen, ok, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); ok && seen < o.GetGeneration() {
		return nil, nil
	}
	pods, err := v.in(ctx, o.GetNamespace())
	if err != nil {
		return nil, err
	}
	owner := o.GetUID()
	match := func(p *pod) bool { return p.ownedBy(owner) }
	switch o.GetKind() {
	case "Pod":
		match = func(p *pod) bool { return p.Metadata.UID == owner }
	case "Deployment":
		if owner, err = v.replicaSet(ctx, o); err != nil || owner == "" {
			return nil, err
		}
	case "StatefulSet":
		rev, _, _ := unstructured.NestedString(o.Object, "status", "updateRevision")
		match = func(p *pod) bool { return p.ownedBy(owner) && p.Metadata.Labels["controller-revision-hash"] == rev }
	case "DaemonSet":
		gen := o.GetAnnotations()["deprecated.daemonset.template.generation"]
		match = func(p *pod) bool {
			return p.ownedBy(owner) && (gen == "" || p.Metadata.Labels["pod-template-generation"] == gen)
		}
	}
	var mine []pod
	for i := range pods {
		if match(&pods[i]) && pods[i].Metadata.DeletionTimestamp == nil {
			mine = append(mine, pods[i])
		}
	}
	return mine, nil
}

func (v *survey) replicaSets(ctx context.Context, ns string) ([]unstructured.Unstructured, error) {
	if sets, ok := v.sets[ns]; ok {
		return sets, nil
	}
	sets, err := v.s.c.List(ctx, "apps", "ReplicaSet", ns, "")
	if err == nil {
		v.sets[ns] = sets
	}
	return sets, err
}

// replicaSet returns the uid of the ReplicaSet of a Deployment's revision.
func (v *survey) replicaSet(ctx context.Context, o *unstructured.Unstructured) (types.UID, error) {
	const revision = "deployment.kubernetes.io/revision"
	sets, err := v.replicaSets(ctx, o.GetNamespace())
	if err != nil {
		return "", err
	}
	for i := range sets {
		for _, ref := range sets[i].GetOwnerReferences() {
			if ref.UID == o.GetUID() && sets[i].GetAnnotations()[revision] == o.GetAnnotations()[revision] {
				return sets[i].GetUID(), nil
			}
		}
	}
	return "", nil
}
