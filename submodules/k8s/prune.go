package k8s

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// prune deletes the objects that are in the inventory but not in the release, in
// reverse order of application, and removes them from the inventory.
func (s *session) prune(ctx context.Context, inv *inventory, r *release) error {
	want := map[cluster.ID]bool{}
	for _, i := range r.ids() {
		want[i] = true
	}
	kept, err := s.removeItems(ctx, inv, func(it item) bool { return want[it.ID] }, nothing)
	if err != nil {
		return err
	}
	inv.Items = kept
	return nil
}

// nothing is not an item.
func nothing(item) bool { return false }

// removeItems deletes the inventory's items except those that keep wants, and
// returns what is left. Data is deleted only if it is in items that data wants to be deleted. Objects of one rank are
// deleted together; those that contain others, after these.
func (s *session) removeItems(ctx context.Context, inv *inventory, keep, data func(item) bool) ([]item, error) {
	left := make([]item, len(inv.Items))
	stays := make([]bool, len(inv.Items))
	uids := make([]types.UID, len(inv.Items))
	for end := len(inv.Items); end > 0; {
		rank := manifest.Rank(inv.Items[end-1].Kind)
		begin := end
		for begin > 0 && manifest.Rank(inv.Items[begin-1].Kind) == rank {
			begin--
		}
		wave := inv.Items[begin:end]
		err := cluster.Each(ctx, len(wave), func(ctx context.Context, i int) (err error) {
			n := begin + i
			left[n], stays[n] = wave[i], true
			if !keep(wave[i]) {
				left[n], stays[n], uids[n], err = s.removeItem(ctx, inv.App, wave[i], data(wave[i]))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		end = begin
		if next := begin - 1; next < 0 || manifest.Rank(inv.Items[next].Kind) <= manifest.RankCRD {
			if err := s.awaitRemoved(ctx, inv.Items[begin:], uids[begin:]); err != nil {
				return nil, err
			}
		}
	}
	var out []item
	for n := range left {
		if stays[n] {
			out = append(out, left[n])
		}
	}
	return out, nil
}

// removeItem deletes one object, unless it stays. The uid is that of the deleted
// object.
func (s *session) removeItem(ctx context.Context, app string, it item, data bool) (left item, stays bool, uid types.UID, err error) {
	o, err := s.c.Get(ctx, it.ID)
	if err != nil || o == nil {
		return it, false, "", err
	}
	why, err := s.stays(ctx, app, it, o, data)
	if err != nil {
		return it, false, "", err
	}
	if why != "" {
		if !it.Retained {
			s.log("%s stays: %s", it.ID, why)
		}
		it.Retained = true
		return it, true, "", nil
	}
	if it.Kind == "StatefulSet" && it.Group == "apps" {
		// Its claims stay, and nothing else records whom they belong to.
		if _, err := s.claimClaims(ctx, app, o); err != nil {
			return it, false, "", err
		}
	}
	if err := durable.Point("remove.object"); err != nil {
		return it, false, "", err
	}
	s.log("delete %s", it.ID)
	return it, false, o.GetUID(), s.c.Remove(ctx, it.ID, o.GetUID())
}

// awaitRemoved waits for deleted objects, for a limited time.
func (s *session) awaitRemoved(ctx context.Context, items []item, uids []types.UID) error {
	byID := map[cluster.ID]types.UID{}
	var ids []cluster.ID
	for n, it := range items {
		if uids[n] != "" {
			byID[it.ID] = uids[n]
			ids = append(ids, it.ID)
		}
	}
	gone, err := s.awaitGone(ctx, ids, byID)
	if err == nil && !gone {
		s.log("warning: some of the deleted objects are still terminating")
	}
	return err
}

// stays says why an object must not be deleted; "" if it may be.
func (s *session) stays(ctx context.Context, app string, it item, o *unstructured.Unstructured, data bool) (string, error) {
	anno, labels := o.GetAnnotations(), o.GetLabels()
	marked := func(k, v string) bool { return anno[k] == v || labels[k] == v }
	switch {
	case it.Adopted:
		return "it was there before the application", nil
	case labels[marks.App] != marks.Value(app):
		return "it is not marked as the application's any more", nil
	case marked(marks.Keep, "true"), marked("helm.sh/resource-policy", "keep"),
		marked("cli-utils.sigs.k8s.io/on-remove", "keep"), marked("client.lifecycle.config.k8s.io/deletion", "detach"),
		marked("kustomize.toolkit.fluxcd.io/prune", "disabled"):
		return "it is marked to be kept", nil
	case !data && it.Group == "" && (it.Kind == "PersistentVolumeClaim" || it.Kind == "PersistentVolume"):
		return "it holds data", nil
	case it.Group == "" && it.Kind == "Namespace":
		return s.namespaceInUse(ctx, it.Name, data)
	case it.Group == groupCRD && it.Kind == kindCRD:
		return s.definitionInUse(ctx, o)
	}
	return "", nil
}

// definitionInUse reports whether custom resources of a definition exist: deleting
// the definition would delete them. It asks for the resources that the definition
// names, because discovery may not know them yet, or no longer.
func (s *session) definitionInUse(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if m["served"] != true {
			continue
		}
		version, _ := m["name"].(string)
		list, err := s.c.ListResource(ctx, schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, "")
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		if len(list) > 0 {
			return fmt.Sprintf("there are objects of its kind, such as %s in %s", list[0].GetName(), list[0].GetNamespace()), nil
		}
		return "", nil // every version has the same objects
	}
	return "", nil
}
