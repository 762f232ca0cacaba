package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
)

// rollout brings a release into the cluster: check everything, pin its images,
// widen the inventory, apply, wait until healthy, prune, narrow the inventory.
// Before the images are pinned nothing has changed; what is dropped goes only
// after what is new is healthy. A call that was interrupted anywhere is
// finished by the next one. strict is false on the way back.
func (s *session) rollout(ctx context.Context, req submodules.Request, strict bool) error {
	app, dir := req.App, req.Dir
	if strict {
		if err := s.checkNamespace(); err != nil {
			return err
		}
	}
	r, err := s.readRelease(ctx, app, dir, strict)
	if err != nil {
		return err
	}
	if r.pins, err = pins(req); err != nil {
		return err
	}
	shipped, err := packDir(dir)
	if err != nil {
		return err
	}
	inv, err := s.c.loadInventory(ctx, app, r.namespace)
	if err != nil {
		return err
	}
	created, err := s.ensureNamespace(ctx, app, r.namespace)
	if err != nil {
		return err
	}
	err = s.checkImages(ctx, r)
	if err == nil {
		err = s.check(ctx, r, inv)
	}
	if err == nil {
		err = s.pin(ctx, app, r.pins)
	}
	if err != nil {
		if created {
			// Ours and empty: leave nothing behind.
			ns := id{Kind: "Namespace", Name: r.namespace}
			rerr := s.c.remove(context.WithoutCancel(ctx), ns, "")
			if rerr == nil {
				_, rerr = s.awaitGone(ctx, []id{ns}, nil)
			}
			if rerr != nil {
				s.log("%v", rerr)
			}
		}
		return err
	}
	s.warnNodes(ctx)

	inv.add(r.items(inv)...)
	if err := s.c.saveInventory(ctx, inv, r.namespace); err != nil {
		return err
	}
	if err := s.applyAll(ctx, r, inv); err != nil {
		return err
	}
	if err := s.waitHealthy(ctx, r.ids()); err != nil {
		return err
	}
	if err := s.awaitEnding(ctx, r.ids()); err != nil {
		return err
	}
	if err := s.prune(ctx, inv, r); err != nil {
		return err
	}
	if err := s.saveShipped(ctx, app, r.namespace, shipped); err != nil {
		return err
	}
	if err := s.c.saveInventory(ctx, inv, r.namespace); err != nil {
		return err
	}
	return s.c.dropInventories(ctx, inv, r.namespace)
}

func (r *release) ids() []id {
	ids := make([]id, len(r.objects))
	for i, p := range r.objects {
		ids[i] = p.id
	}
	return ids
}

// items are the release's objects as the inventory has them.
func (r *release) items(inv *inventory) []item {
	items := make([]item, len(r.objects))
	for i, p := range r.objects {
		items[i] = item{id: p.id, Adopted: p.live != nil && p.live.other}
		if old := inv.find(p.id); old != nil {
			items[i].Adopted = old.Adopted
		}
	}
	return items
}

// checkNamespace refuses the cluster's own namespaces: the metadata of an
// artifact may name one.
func (s *session) checkNamespace() error {
	switch ns := s.namespace(); ns {
	case "kube-system", "kube-public", "kube-node-lease":
		if !s.set.namespaceAllowed(ns) {
			return submodules.Mark(fmt.Errorf("the namespace %s is the cluster's own: refused unless K8S_ALLOW_NAMESPACES in %s allows it", ns, ConfigName), submodules.ErrContent)
		}
	}
	return nil
}

// labelCreated marks a namespace that we created, with the application.
const labelCreated = "mender-app.io/created-for"

// ensureNamespace creates the application's namespace unless it is there.
func (s *session) ensureNamespace(ctx context.Context, app, ns string) (created bool, err error) {
	i := id{Kind: "Namespace", Name: ns}
	o, err := s.c.get(ctx, i)
	if err == nil && o != nil && o.GetDeletionTimestamp() != nil && o.GetLabels()[labelCreated] == appLabel(app) {
		// An earlier call of ours ended while it was on its way out.
		if _, err = s.awaitGone(ctx, []id{i}, nil); err == nil {
			o, err = s.c.get(ctx, i)
		}
	}
	if err != nil {
		return false, err
	}
	if o != nil {
		if o.GetDeletionTimestamp() != nil {
			return false, fmt.Errorf("the namespace %s is being deleted; try again when it is gone (kubectl describe namespace %s says what holds it)", ns, ns)
		}
		return false, nil
	}
	m, err := s.c.mapping(ctx, "", "Namespace", "v1")
	if err != nil {
		return false, err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": ns, "labels": map[string]string{labelCreated: appLabel(app)}},
	})
	if err != nil {
		return false, err
	}
	if _, err := s.c.apply(ctx, m, i, body, false); err != nil {
		return false, fmt.Errorf("create namespace %s: %w", ns, err)
	}
	return true, nil
}

// warnNodes says what an image store of one node means where there are more.
func (s *session) warnNodes(ctx context.Context) {
	nodes, err := s.c.list(ctx, "", "Node", "", "")
	if err == nil && len(nodes) > 1 {
		s.log("warning: this cluster has %d nodes; the images are on this one only, pods on others cannot start from them", len(nodes))
	}
}

// applyAll applies the release, rank by rank; what namespaces and custom
// resource definitions bring is waited for.
func (s *session) applyAll(ctx context.Context, r *release, inv *inventory) error {
	for rest := r.objects; len(rest) > 0; {
		rank := manifest.Rank(rest[0].Kind)
		n := slices.IndexFunc(rest, func(p *planned) bool { return manifest.Rank(p.Kind) != rank })
		if n < 0 {
			n = len(rest)
		}
		wave := rest[:n]
		rest = rest[n:]
		if err := each(ctx, n, func(ctx context.Context, i int) error { return s.applyOne(ctx, r, wave[i], inv) }); err != nil {
			return err
		}
		ids := make([]id, n)
		for i, p := range wave {
			ids[i] = p.id
		}
		switch rank {
		case manifest.RankNamespace, manifest.RankCRD:
		case manifest.RankClaim:
			if err := s.awaitClaims(ctx, ids); err != nil {
				return err
			}
			continue
		default:
			continue
		}
		if err := s.waitHealthy(ctx, ids); err != nil {
			return err
		}
		if rank == manifest.RankCRD {
			s.c.mapper.Reset()
		}
	}
	return nil
}

// awaitClaims gives volume claims a moment to be bound: the time a pod waits
// for one counts towards its Deployment's deadline. Whether they are bound in
// the end, waitHealthy says.
func (s *session) awaitClaims(ctx context.Context, ids []id) error {
	var all []*waiting
	for _, i := range ids {
		all = append(all, &waiting{id: i})
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		pending, err := s.poll(ctx, all)
		if err != nil || len(pending) == 0 {
			return err
		}
		if err := sleep(ctx, s.pause()); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) applyOne(ctx context.Context, r *release, p *planned, inv *inventory) error {
	if p.same {
		return nil
	}
	if p.mapping == nil {
		m, err := s.awaitMapping(ctx, p)
		if err != nil {
			return err
		}
		p.mapping = m
	}
	if p.replace {
		if err := s.replace(ctx, p); err != nil {
			return err
		}
	}
	o, err := s.c.apply(ctx, p.mapping, p.id, p.data, false)
	if err != nil {
		return s.explain(r.dir, p, err)
	}
	return s.unstop(ctx, p.id, o, p.JSON)
}

// awaitMapping waits for a kind whose definition was just applied: discovery
// is a moment behind.
func (s *session) awaitMapping(ctx context.Context, p *planned) (*meta.RESTMapping, error) {
	for end := time.Now().Add(15 * time.Second); ; {
		m, err := s.c.mapping(ctx, p.Group(), p.Kind, p.Version())
		if err == nil || !meta.IsNoMatchError(err) {
			return m, err
		}
		if time.Now().After(end) {
			return nil, p.Errorf("its CustomResourceDefinition does not serve %s", p.APIVersion)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
		s.c.mapper.Reset()
	}
}

// replace makes room for a changed Job or Pod: the old one goes, and is waited
// for.
func (s *session) replace(ctx context.Context, p *planned) error {
	if err := s.c.remove(ctx, p.id, p.live.uid); err != nil {
		return err
	}
	gone, err := s.awaitGone(ctx, []id{p.id}, map[id]types.UID{p.id: p.live.uid})
	if err == nil && !gone {
		err = p.Errorf("the old one does not end")
	}
	return err
}

// awaitGone waits until none of the objects is there, or is another one than
// that with the uid. It gives up, with false, after Settings.TerminateFor.
func (s *session) awaitGone(ctx context.Context, ids []id, uids map[id]types.UID) (bool, error) {
	end := time.Now().Add(s.set.TerminateFor)
	for len(ids) > 0 {
		there := make([]bool, len(ids))
		err := each(ctx, len(ids), func(ctx context.Context, n int) error {
			o, err := s.c.get(ctx, ids[n])
			there[n] = o != nil && (uids[ids[n]] == "" || uids[ids[n]] == o.GetUID())
			return err
		})
		if err != nil {
			return false, err
		}
		var left []id
		for n, i := range ids {
			if there[n] {
				left = append(left, i)
			}
		}
		if ids = left; len(ids) == 0 {
			break
		}
		if time.Now().After(end) {
			return false, nil
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return false, err
		}
	}
	return true, nil
}

// awaitEnding waits for the pods that the release took the place of, not for
// ever: as long as they are there, their images are in use.
func (s *session) awaitEnding(ctx context.Context, ids []id) error {
	for end := time.Now().Add(s.set.TerminateFor); ; {
		left, err := s.running(ctx, ids, func(p *pod) bool { return p.Metadata.DeletionTimestamp != nil })
		if err != nil || left == "" {
			return err
		}
		if time.Now().After(end) {
			s.log("warning: pod %s of the release before is still ending", left)
			return nil
		}
		if err := sleep(ctx, s.pause()); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// prune deletes what the inventory has and the release has not, the last
// applied first, and narrows the inventory to what is left.
func (s *session) prune(ctx context.Context, inv *inventory, r *release) error {
	want := map[id]bool{}
	for _, i := range r.ids() {
		want[i] = true
	}
	kept, err := s.removeItems(ctx, inv, func(it item) bool { return want[it.id] }, false)
	if err != nil {
		return err
	}
	inv.Items = kept
	return nil
}

// removeItems deletes the inventory's items but those that keep wants, and
// returns what is left. Data goes only with data set. Objects of one rank go at
// once; what others live in, when those are gone.
func (s *session) removeItems(ctx context.Context, inv *inventory, keep func(item) bool, data bool) ([]item, error) {
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
		err := each(ctx, len(wave), func(ctx context.Context, i int) (err error) {
			n := begin + i
			left[n], stays[n] = wave[i], true
			if !keep(wave[i]) {
				left[n], stays[n], uids[n], err = s.removeItem(ctx, inv.App, wave[i], data)
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

// removeItem deletes one object, unless it stays. The uid is that of what is
// on its way out.
func (s *session) removeItem(ctx context.Context, app string, it item, data bool) (left item, stays bool, uid types.UID, err error) {
	o, err := s.c.get(ctx, it.id)
	if err != nil || o == nil {
		return it, false, "", err
	}
	why, err := s.stays(ctx, app, it, o, data)
	if err != nil {
		return it, false, "", err
	}
	if why != "" {
		if !it.Retained {
			s.log("%s stays: %s", it.id, why)
		}
		it.Retained = true
		return it, true, "", nil
	}
	s.log("delete %s", it.id)
	return it, false, o.GetUID(), s.c.remove(ctx, it.id, o.GetUID())
}

// awaitRemoved waits for what was deleted, not for ever.
func (s *session) awaitRemoved(ctx context.Context, items []item, uids []types.UID) error {
	byID := map[id]types.UID{}
	var ids []id
	for n, it := range items {
		if uids[n] != "" {
			byID[it.id] = uids[n]
			ids = append(ids, it.id)
		}
	}
	gone, err := s.awaitGone(ctx, ids, byID)
	if err == nil && !gone {
		s.log("warning: some of what was deleted is still ending")
	}
	return err
}

// stays says why an object must not be deleted, "" if it may.
func (s *session) stays(ctx context.Context, app string, it item, o *unstructured.Unstructured, data bool) (string, error) {
	anno, labels := o.GetAnnotations(), o.GetLabels()
	marked := func(k, v string) bool { return anno[k] == v || labels[k] == v }
	switch {
	case it.Adopted:
		return "it was there before the application", nil
	case labels[labelApp] != appLabel(app):
		return "it is not marked as the application's any more", nil
	case marked(annoKeep, "true"), marked("helm.sh/resource-policy", "keep"),
		marked("cli-utils.sigs.k8s.io/on-remove", "keep"), marked("client.lifecycle.config.k8s.io/deletion", "detach"),
		marked("kustomize.toolkit.fluxcd.io/prune", "disabled"):
		return "it is marked to be kept", nil
	case !data && it.Group == "" && (it.Kind == "PersistentVolumeClaim" || it.Kind == "PersistentVolume"):
		return "it holds data", nil
	case it.Group == "" && it.Kind == "Namespace":
		return s.namespaceInUse(ctx, it.Name, data)
	case it.Group == "apiextensions.k8s.io" && it.Kind == "CustomResourceDefinition":
		return s.definitionInUse(ctx, o)
	}
	return "", nil
}

// definitionInUse tells whether custom resources of a definition are there:
// they would go with it.
func (s *session) definitionInUse(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	list, err := s.c.list(ctx, group, kind, "", "")
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		return fmt.Sprintf("there are objects of its kind, such as %s in %s", list[0].GetName(), list[0].GetNamespace()), nil
	}
	return "", nil
}
