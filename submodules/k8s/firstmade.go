package k8s

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// A first installation that fails leaves nothing, so the volumes and claims that it made go
// with it. The first ROLLOUT writes into the inventory what was not there before, because a
// claim that was there may have data of an earlier installation. Times of creation cannot
// tell: the clock of a device may be wrong.

func isClaim(i cluster.ID) bool { return i.Group == "" && i.Kind == "PersistentVolumeClaim" }

func isSet(i cluster.ID) bool { return i.Group == "apps" && i.Kind == "StatefulSet" }

// noteMade marks the items that a first release makes.
func (s *session) noteMade(ctx context.Context, r *release, items []item) error {
	for n, p := range r.objects {
		items[n].Made = p.live == nil
		if !items[n].Made || !isSet(p.id) {
			continue
		}
		var set unstructured.Unstructured
		if err := json.Unmarshal(p.data, &set.Object); err != nil {
			return err
		}
		claims, err := s.c.List(ctx, "", "PersistentVolumeClaim", p.id.Namespace, "")
		if err != nil {
			return err
		}
		for _, c := range claims {
			if madeBy(&set, c.GetName()) {
				items[n].Before = append(items[n].Before, c.GetName())
			}
		}
	}
	return nil
}

// findMade adds the claims that StatefulSets of a first release made, finds the volumes that
// claims were lent, and saves that: it cannot be found again when they are gone.
func (s *session) findMade(ctx context.Context, inv *inventory) error {
	for _, it := range slices.Clone(inv.Items) {
		if !it.Made || !isSet(it.ID) {
			continue
		}
		set, err := s.c.Get(ctx, it.ID)
		if err != nil {
			return err
		}
		if set == nil {
			continue
		}
		claims, err := s.claimClaims(ctx, inv.App, set)
		if err != nil {
			return err
		}
		for _, c := range claims {
			i := cluster.ID{Kind: "PersistentVolumeClaim", Namespace: c.GetNamespace(), Name: c.GetName()}
			if inv.find(i) == nil && !slices.Contains(it.Before, c.GetName()) {
				inv.add(item{ID: i, Made: true})
			}
		}
	}
	for n := range inv.Items {
		if err := s.findLent(ctx, inv, &inv.Items[n]); err != nil {
			return err
		}
	}
	if len(inv.Places) == 0 {
		return nil // nothing was made
	}
	return saveInventory(ctx, s.c, inv, inv.Places[0])
}

// lent says which volume, that was there before, a claim has.
type lent struct {
	Volume string    `json:"volume"`
	UID    types.UID `json:"uid"` // of the claim
	// Chosen: the cluster chose the volume. Otherwise the volume names the claim.
	Chosen bool `json:"chosen,omitempty"`
}

// findLent notes the volume of a claim that the release made, if it is neither the
// release's nor made for the claim. A claim whose volume would be emptied stays.
func (s *session) findLent(ctx context.Context, inv *inventory, it *item) error {
	if !it.Made || !isClaim(it.ID) {
		return nil
	}
	claim, err := s.c.Get(ctx, it.ID)
	if err != nil || claim == nil {
		return err
	}
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	i := cluster.ID{Kind: "PersistentVolume", Name: name}
	if own := inv.find(i); name == "" || own != nil && own.Made {
		return nil
	}
	v, err := s.c.Get(ctx, i)
	if err != nil || v == nil || v.GetAnnotations()["pv.kubernetes.io/provisioned-by"] != "" {
		return err
	}
	if policy, _, _ := unstructured.NestedString(v.Object, "spec", "persistentVolumeReclaimPolicy"); policy != "Retain" {
		s.log("%s stays: its volume %s was there before, and would be emptied", it.ID, name)
		it.Made = false
		return nil
	}
	it.Lent = &lent{Volume: name, UID: claim.GetUID(), Chosen: v.GetAnnotations()["pv.kubernetes.io/bound-by-controller"] == "yes"}
	return nil
}

// giveBack makes lent volumes available again once their claims are gone.
func (s *session) giveBack(ctx context.Context, inv *inventory) error {
	for _, it := range inv.Items {
		if it.Lent == nil {
			continue
		}
		gone, err := s.awaitGone(ctx, []cluster.ID{it.ID}, map[cluster.ID]types.UID{it.ID: it.Lent.UID})
		if err != nil {
			return err
		}
		if !gone {
			s.log("warning: %s is still terminating; its volume %s stays bound", it.ID, it.Lent.Volume)
			continue
		}
		i := cluster.ID{Kind: "PersistentVolume", Name: it.Lent.Volume}
		v, err := s.c.Get(ctx, i)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if of, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "uid"); of != string(it.Lent.UID) {
			continue
		}
		var ref any // of a volume that the cluster chose: none
		if !it.Lent.Chosen {
			ref = map[string]any{"uid": nil, "resourceVersion": nil}
		}
		if err := s.c.Patch(ctx, i, map[string]any{"spec": map[string]any{"claimRef": ref}}); err != nil {
			return err
		}
		s.log("the volume %s is available again", i.Name)
	}
	return nil
}
