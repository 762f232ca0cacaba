package k8s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// purge removes all objects of the application from the cluster; those that hold data
// only if asked to, or if first is set and the first release made them.
func (s *session) purge(ctx context.Context, app string, data, first bool) error {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return err
	}
	if data {
		if err := s.addClaims(ctx, inv); err != nil {
			return err
		}
	}
	if first {
		if err := s.findMade(ctx, inv); err != nil {
			return err
		}
	}
	left, err := s.removeItems(ctx, inv, nothing, func(it item) bool { return data || first && it.Made })
	if err != nil {
		return err
	}
	if first {
		if err := s.giveBack(ctx, inv); err != nil {
			return err
		}
	}
	for _, it := range left {
		if it.Adopted {
			// It no longer belongs to the application.
			if err := s.c.Patch(ctx, it.ID, map[string]any{"metadata": map[string]any{"labels": map[string]any{marks.App: nil}}}); err != nil {
				return err
			}
		}
	}
	places := s.places(inv)
	if !data {
		if err := s.noteLeft(ctx, inv.App, places, left); err != nil {
			return err
		}
	}
	if err := durable.Point("purge.removed"); err != nil {
		return err
	}
	for _, ns := range places {
		if err := s.c.Remove(ctx, shippedID(app, ns), ""); err != nil {
			return err
		}
	}
	if err := durable.Point("purge.shipped"); err != nil {
		return err
	}
	if err := dropInventories(ctx, s.c, inv, ""); err != nil {
		return err
	}
	if err := durable.Point("purge.forgotten"); err != nil {
		return err
	}
	for _, ns := range places {
		if err := s.purgeNamespace(ctx, app, ns, data); err != nil {
			return err
		}
	}
	return nil
}

// places are the namespaces in which the application may have objects: those with
// its inventory, and its own, because the first ROLLOUT may have been killed before
// it wrote an inventory.
func (s *session) places(inv *inventory) []string {
	places := append([]string(nil), inv.Places...)
	if ns := s.namespace(); !slices.Contains(places, ns) {
		places = append(places, ns)
	}
	return places
}

// noteLeft marks the claims and volumes that a PURGE leaves as those of this device: when the
// inventory is gone, nothing else says in which namespace the application was.
func (s *session) noteLeft(ctx context.Context, app string, places []string, left []item) error {
	var stays []cluster.ID
	for _, ns := range places {
		claims, err := s.c.List(ctx, "", "PersistentVolumeClaim", ns, marks.App+"="+marks.Value(app))
		if err != nil {
			return err
		}
		for _, c := range claims {
			stays = append(stays, cluster.ID{Kind: "PersistentVolumeClaim", Namespace: c.GetNamespace(), Name: c.GetName()})
		}
	}
	for _, it := range left {
		if !it.Adopted && it.Group == "" && it.Kind == "PersistentVolume" {
			stays = append(stays, it.ID)
		}
	}
	for _, i := range stays {
		if err := s.c.Patch(ctx, i, map[string]any{"metadata": map[string]any{"annotations": map[string]any{marks.Device: deviceID()}}}); err != nil {
			return err
		}
	}
	return nil
}

// addPlaces adds the namespaces with claims that an earlier PURGE of this device left.
func (s *session) addPlaces(ctx context.Context, inv *inventory) error {
	claims, err := s.c.List(ctx, "", "PersistentVolumeClaim", "", marks.App+"="+marks.Value(inv.App))
	if apierrors.IsForbidden(errors.Unwrap(err)) {
		return nil
	}
	for _, c := range claims {
		if c.GetAnnotations()[marks.Device] == deviceID() && !slices.Contains(inv.Places, c.GetNamespace()) {
			inv.Places = append(inv.Places, c.GetNamespace())
		}
	}
	return err
}

// addClaims adds the volume claims and volumes that the inventory lacks: claims that a
// StatefulSet made, and what an earlier PURGE left.
func (s *session) addClaims(ctx context.Context, inv *inventory) error {
	add := func(o *unstructured.Unstructured) {
		i := cluster.ID{Kind: "PersistentVolumeClaim", Namespace: o.GetNamespace(), Name: o.GetName()}
		if inv.find(i) == nil {
			inv.add(item{ID: i})
		}
	}
	if err := s.addPlaces(ctx, inv); err != nil {
		return err
	}
	for _, ns := range s.places(inv) {
		claims, err := s.c.List(ctx, "", "PersistentVolumeClaim", ns, marks.App+"="+marks.Value(inv.App))
		if err != nil {
			return err
		}
		for n := range claims {
			add(&claims[n])
		}
	}
	if err := s.addVolumes(ctx, inv); err != nil {
		return err
	}
	for _, it := range append([]item(nil), inv.Items...) {
		if it.Kind != "StatefulSet" {
			continue
		}
		o, err := s.c.Get(ctx, it.ID)
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		claims, err := s.claimClaims(ctx, inv.App, o)
		if err != nil {
			return err
		}
		for n := range claims {
			add(&claims[n])
		}
	}
	return nil
}

// addVolumes adds the application's volumes that a claim in one of its namespaces had, and
// those that an earlier PURGE of this device left. Any other may be that of another device in the cluster, with an application of this name.
func (s *session) addVolumes(ctx context.Context, inv *inventory) error {
	volumes, err := s.c.List(ctx, "", "PersistentVolume", "", marks.App+"="+marks.Value(inv.App))
	if apierrors.IsForbidden(errors.Unwrap(err)) {
		return nil
	}
	if err != nil {
		return err
	}
	places := s.places(inv)
	for _, v := range volumes {
		i := cluster.ID{Kind: "PersistentVolume", Name: v.GetName()}
		ns, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "namespace")
		if (slices.Contains(places, ns) || v.GetAnnotations()[marks.Device] == deviceID()) && inv.find(i) == nil {
			inv.add(item{ID: i})
		}
	}
	return nil
}

// claimClaims marks the volume claims that a StatefulSet made as the application's,
// and returns them.
func (s *session) claimClaims(ctx context.Context, app string, set *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	claims, err := s.c.List(ctx, "", "PersistentVolumeClaim", set.GetNamespace(), "")
	if err != nil {
		return nil, err
	}
	claims = slices.DeleteFunc(claims, func(c unstructured.Unstructured) bool { return !madeBy(set, c.GetName()) })
	for n := range claims {
		if claims[n].GetLabels()[marks.App] == marks.Value(app) {
			continue
		}
		i := cluster.ID{Kind: "PersistentVolumeClaim", Namespace: set.GetNamespace(), Name: claims[n].GetName()}
		if err := s.c.Patch(ctx, i, map[string]any{"metadata": map[string]any{"labels": map[string]any{marks.App: marks.Value(app)}}}); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// madeBy reports whether a StatefulSet's templates make a claim of this name:
// template-set-ordinal.
func madeBy(set *unstructured.Unstructured, claim string) bool {
	templates, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
	for _, t := range templates {
		m, _ := t.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "metadata", "name")
		rest, ok := strings.CutPrefix(claim, name+"-"+set.GetName()+"-")
		if ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			return true
		}
	}
	return false
}

// purgeNamespace removes the namespace if mender-app created it for the application
// and it holds no objects of others.
func (s *session) purgeNamespace(ctx context.Context, app, ns string, data bool) error {
	i := cluster.ID{Kind: "Namespace", Name: ns}
	o, err := s.c.Get(ctx, i)
	if err != nil || o == nil {
		return err
	}
	if o.GetLabels()[marks.CreatedFor] != marks.Value(app) {
		return nil
	}
	why, err := s.namespaceInUse(ctx, ns, data)
	if err != nil {
		return err
	}
	if why != "" {
		s.log("the namespace %s stays: %s", ns, why)
		return nil
	}
	if err := s.c.Remove(ctx, i, o.GetUID()); err != nil {
		return err
	}
	_, err = s.awaitGone(ctx, []cluster.ID{i}, nil)
	return err
}

// namespaceInUse names an object that would be lost with the namespace. Objects that
// Kubernetes itself puts into each namespace, or that are being deleted with their
// owner, do not count.
func (s *session) namespaceInUse(ctx context.Context, ns string, data bool) (string, error) {
	lists, err := s.namespacedResources(ctx)
	if discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Sprintf("not everything in it can be listed: %v", err), nil
	}
	if err != nil {
		return "", fmt.Errorf("list resources: %w", err)
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			if !strings.Contains(strings.Join(r.Verbs, " "), "list") || passing[r.Kind] {
				continue
			}
			// By its resource and not through the mapper, which is older than the
			// list of resources: definitions may come and go meanwhile.
			list, err := s.c.ListResource(ctx, gv.WithResource(r.Name), ns)
			if apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) {
				continue
			} else if apierrors.IsForbidden(err) {
				return fmt.Sprintf("not everything in it can be listed: %v", err), nil
			}
			if err != nil {
				return "", err
			}
			for n := range list {
				o := &list[n]
				if len(o.GetOwnerReferences()) > 0 || o.GetDeletionTimestamp() != nil ||
					r.Kind == "ServiceAccount" && o.GetName() == "default" ||
					r.Kind == "ConfigMap" && o.GetName() == "kube-root-ca.crt" {
					continue
				}
				if r.Kind == "PersistentVolumeClaim" && !data {
					return "it holds data: " + o.GetName(), nil
				}
				return fmt.Sprintf("there is %s/%s in it", r.Kind, o.GetName()), nil
			}
		}
	}
	return "", nil
}

// namespacedResources lists the kinds of objects that can be in a namespace. It
// tries again if groups come or go meanwhile.
func (s *session) namespacedResources(ctx context.Context) (lists []*metav1.APIResourceList, err error) {
	for try := 1; ; try++ {
		err = s.c.Retry(ctx, func() (err error) {
			lists, err = s.c.Disco.ServerPreferredNamespacedResources()
			return err
		})
		if try == 10 || !discovery.IsGroupDiscoveryFailedError(err) {
			return lists, err
		}
		if err := cluster.Sleep(ctx, s.pause()); err != nil {
			return nil, err
		}
	}
}

// Objects of these kinds come and go by themselves.
var passing = map[string]bool{
	"Event": true, "Endpoints": true, "EndpointSlice": true, "Lease": true, "PodMetrics": true,
	"ControllerRevision": true,
}
