package k8s

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// checkOthers refuses a release whose objects name what another application has in their
// namespace, unless ALLOW_OTHERS has the pair. Names that the release brings are its own:
// check refuses them if they belong to another application.
func (s *session) checkOthers(ctx context.Context, r *release) error {
	seen := map[cluster.ID]bool{}
	for _, p := range r.objects {
		seen[p.id] = true
	}
	for _, p := range r.objects {
		for _, u := range manifest.Uses(p.Object) {
			id := cluster.ID{Group: u.Group, Kind: u.Kind, Namespace: p.id.Namespace, Name: u.Name}
			if seen[id] {
				continue
			}
			seen[id] = true
			owner, err := s.ownerOf(ctx, id)
			if err != nil {
				return err
			}
			if owner == "" || owner == marks.Value(r.app) || s.set.Others.Allow(r.app, func(name string) bool { return marks.Value(name) == owner }) {
				continue
			}
			return submodules.Mark(p.Errorf("it uses the %s %s of application %s: refused unless ALLOW_OTHERS in %s has %s:%s",
				u.Kind, u.Name, owner, ConfigName, r.app, owner), submodules.ErrContent)
		}
	}
	return nil
}

// ownerOf is the label of the application that has an object; "" for none, and for what
// mender-app may not see. The claims of a StatefulSet are those of its application.
func (s *session) ownerOf(ctx context.Context, id cluster.ID) (owner string, err error) {
	o, err := s.c.Get(ctx, id)
	if apierrors.IsForbidden(errors.Unwrap(err)) {
		return "", nil
	}
	if err != nil || o == nil {
		return "", err
	}
	if owner = o.GetLabels()[marks.App]; owner != "" || id.Kind != "PersistentVolumeClaim" {
		return owner, nil
	}
	err = s.c.EachOf(ctx, "apps", "StatefulSet", id.Namespace, marks.App, func(set *unstructured.Unstructured) {
		if madeBy(set, id.Name) {
			owner = set.GetLabels()[marks.App]
		}
	})
	return owner, err
}
