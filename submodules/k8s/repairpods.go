package k8s

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// Repair implements submodules.Session. Applications that run from damaged files are
// stopped as by STOP; the caller's ROLLOUT starts them again.
func (s *session) Repair(ctx context.Context, r submodules.RepairRequest) ([]string, error) {
	store, err := s.images(ctx)
	if err != nil {
		return nil, err
	}
	store.SetLog(s.log)
	q, err := imagestore.NewRepairRequest(r)
	if err != nil {
		return nil, err
	}
	apps, err := imagestore.Repair(ctx, store.RepairStore(s.users, s.stop), q)
	if err != nil || s.set.Registry == nil {
		return apps, err
	}
	for _, w := range q.Want {
		if has, err := store.Has(ctx, w.Identity); err != nil {
			return nil, err
		} else if !has {
			continue // a repair that had not begun and should not begin
		}
		if err := store.Push(ctx, s.set.Registry, s.req.App, w.Identity); err != nil {
			return nil, err
		}
	}
	return apps, nil
}

// users returns the applications of this device whose pods have the running
// containers. refs are the own references of the images that these were made from.
func (s *session) users(ctx context.Context, refs []string, running []containerd.Container) ([]string, error) {
	owner := map[string]string{} // uid of a pod → application
	names, err := s.applications(ctx)
	if err != nil {
		return nil, err
	}
	for _, app := range names {
		has := func(ref string) bool { return strings.HasPrefix(ref, imagestore.OwnRepository(app)+":") }
		if !slices.ContainsFunc(refs, has) {
			continue
		}
		uids, err := s.podsOf(ctx, app)
		if err != nil {
			return nil, err
		}
		for _, uid := range uids {
			owner[string(uid)] = app
		}
	}
	var apps []string
	for _, c := range running {
		app, ok := owner[c.PodUID]
		if !ok {
			return nil, submodules.Mark(fmt.Errorf("%s belongs to no application and runs from a damaged image: stop it (kubectl -n %s delete pod %s, or scale down what makes it), and repair again",
				c, c.PodNamespace, c.Pod), submodules.ErrContent)
		}
		if !slices.Contains(apps, app) {
			apps = append(apps, app)
		}
	}
	slices.Sort(apps)
	return apps, nil
}

// applications returns the applications that this device has in the cluster.
func (s *session) applications(ctx context.Context) (names []string, err error) {
	err = s.c.EachOf(ctx, "", "ConfigMap", "", marks.Inventory, func(o *unstructured.Unstructured) {
		app, _, _ := unstructured.NestedString(o.Object, "data", "app")
		device, _, _ := unstructured.NestedString(o.Object, "data", "device")
		if app != "" && ours(o, app) && o.GetName() == marks.InventoryName(app) && device == deviceID() && !slices.Contains(names, app) {
			names = append(names, app)
		}
	})
	return names, err
}

// podsOf returns the uids of an application's pods.
func (s *session) podsOf(ctx context.Context, app string) (uids []types.UID, err error) {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return nil, err
	}
	var ids []cluster.ID
	for _, it := range inv.Items {
		ids = append(ids, it.ID)
		if it.Kind != "CronJob" && it.Kind != "Pod" {
			continue
		}
		o, err := s.c.Get(ctx, it.ID)
		if err != nil {
			return nil, err
		}
		if o == nil {
			continue
		}
		if it.Kind == "Pod" {
			uids = append(uids, o.GetUID())
			continue
		}
		err = s.eachChild(ctx, o, func(i cluster.ID, _ *unstructured.Unstructured) error { ids = append(ids, i); return nil })
		if err != nil {
			return nil, err
		}
	}
	_, err = s.running(ctx, ids, func(p *pod) bool { uids = append(uids, p.Metadata.UID); return false })
	return uids, err
}
