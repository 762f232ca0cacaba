package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// This file keeps applications of one namespace apart where objects find pods by their
// labels: a name says whose it is, and a label does not.

// workloads are the kinds that make pods, or are one.
var workloads = []struct{ group, kind string }{
	{"", "Pod"}, {"", "ReplicationController"}, {"apps", "Deployment"}, {"apps", "ReplicaSet"}, {"apps", "StatefulSet"}, {"apps", "DaemonSet"}, {"batch", "Job"}, {"batch", "CronJob"},
}

// checkSelectors refuses a release that selects pods of another application in their
// namespace, or whose pods a Service of another application would select, unless
// ALLOW_OTHERS has the pair.
func (s *session) checkSelectors(ctx context.Context, r *release) error {
	for _, p := range r.objects {
		if p.id.Namespace == "" {
			continue
		}
		selects, selector, err := selectorOf(p.Object)
		if err != nil {
			return submodules.Mark(p.Errorf("%w", err), submodules.ErrContent)
		}
		if selects {
			for _, w := range workloads {
				err := s.eachOfOthers(ctx, r.app, w.group, w.kind, p.id.Namespace, func(o *unstructured.Unstructured, owner string) error {
					if !selector.Matches(podLabels(o.GetAPIVersion(), o.GetKind(), o.Object)) {
						return nil
					}
					return p.Errorf("it selects the pods of the %s %s of application %s", o.GetKind(), o.GetName(), owner)
				})
				if err != nil {
					return err
				}
			}
		}
		if manifest.PodPath(p.Group(), p.Kind) == "" {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal(p.JSON, &object); err != nil {
			return submodules.Mark(p.Errorf("%w", err), submodules.ErrContent)
		}
		pods := podLabels(p.APIVersion, p.Kind, object)
		err = s.eachOfOthers(ctx, r.app, "", "Service", p.id.Namespace, func(o *unstructured.Unstructured, owner string) error {
			wants, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector")
			if len(wants) == 0 || !labels.SelectorFromSet(wants).Matches(pods) {
				return nil
			}
			return p.Errorf("its pods have the labels %s, so they get what is sent to the Service %s of application %s", labels.FormatLabels(wants), o.GetName(), owner)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachOfOthers refuses what f finds wrong with objects of other applications, but for those
// that the operator allows. What mender-app may not list is not seen.
func (s *session) eachOfOthers(ctx context.Context, app, group, kind, namespace string, f func(o *unstructured.Unstructured, owner string) error) error {
	var found error
	err := s.c.EachOf(ctx, group, kind, namespace, marks.App, func(o *unstructured.Unstructured) {
		owner := o.GetLabels()[marks.App]
		if found != nil || owner == marks.Value(app) || s.set.Others.Allow(app, func(name string) bool { return marks.Value(name) == owner }) {
			return
		}
		if err := f(o, owner); err != nil {
			found = submodules.Mark(fmt.Errorf("%w: refused unless ALLOW_OTHERS in %s has %s:%s", err, ConfigName, app, owner), submodules.ErrContent)
		}
	})
	if meta.IsNoMatchError(errors.Unwrap(err)) || apierrors.IsForbidden(errors.Unwrap(err)) {
		err = nil
	}
	return errors.Join(found, err)
}

// selectorOf is how an object finds pods of its namespace, if it finds them by labels. A
// quota and a range of limits are for all. A workload is not among them: it takes no pods
// that another one has made.
func selectorOf(o *manifest.Object) (selects bool, selector labels.Selector, err error) {
	var spec struct {
		Spec struct {
			Selector    json.RawMessage `json:"selector"`
			PodSelector json.RawMessage `json:"podSelector"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.JSON, &spec); err != nil {
		return false, nil, err
	}
	text := spec.Spec.Selector
	switch o.Group() + "/" + o.Kind {
	case "/ResourceQuota", "/LimitRange":
		return true, labels.Everything(), nil
	case "/Service":
		var set labels.Set
		if len(text) > 0 {
			err = json.Unmarshal(text, &set)
		}
		return len(set) > 0, labels.SelectorFromSet(set), err
	case "networking.k8s.io/NetworkPolicy":
		text = spec.Spec.PodSelector
	case "policy/PodDisruptionBudget":
		if len(text) == 0 || string(text) == "null" {
			return false, nil, nil // it selects none
		}
	default:
		return false, nil, nil
	}
	var s metav1.LabelSelector
	if len(text) > 0 {
		if err := json.Unmarshal(text, &s); err != nil {
			return false, nil, err
		}
	}
	selector, err = metav1.LabelSelectorAsSelector(&s)
	return true, selector, err
}

// podLabels are the labels of the pods that an object makes.
func podLabels(apiVersion, kind string, object map[string]any) labels.Set {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = ""
	}
	path := strings.Split(manifest.PodPath(group, kind), ".")
	found, _, _ := unstructured.NestedStringMap(object, append(path[:len(path)-1], "metadata", "labels")...)
	return found
}
