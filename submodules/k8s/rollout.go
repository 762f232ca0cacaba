package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// rollout brings a release into the cluster: check everything, pin the images, add
// the release to the inventory, apply, wait until it is healthy, prune, and reduce
// the inventory to the release. Nothing changes before the images are pinned, and
// old objects are deleted only after the new ones are healthy. If a call is
// interrupted anywhere, the next one finishes it. strict is false when going back.
func (s *session) rollout(ctx context.Context, req submodules.Request, strict bool) error {
	app := req.App
	r, inv, shipped, err := s.prepare(ctx, req, strict)
	if err != nil {
		return err
	}
	created, err := s.ensureNamespace(ctx, app, r.namespace)
	if err != nil {
		return err
	}
	err = durable.Point("rollout.namespace")
	if err == nil {
		err = s.checkImages(ctx, r)
	}
	if err == nil {
		err = s.check(ctx, r, inv)
	}
	if err == nil {
		err = durable.Point("rollout.checked")
	}
	if err == nil {
		err = s.pin(ctx, app, r)
	}
	if err != nil {
		if created {
			// It is ours and empty: leave nothing behind.
			ns := cluster.ID{Kind: "Namespace", Name: r.namespace}
			rerr := s.c.Remove(context.WithoutCancel(ctx), ns, "")
			if rerr == nil {
				_, rerr = s.awaitGone(ctx, []cluster.ID{ns}, nil)
			}
			if rerr != nil {
				s.log("%v", rerr)
			}
		}
		return err
	}
	s.warnNodes(ctx)

	items := r.items(inv)
	if strict && len(inv.Places) == 0 { // the first, and not one that was interrupted
		if err := s.noteMade(ctx, r, items); err != nil {
			return err
		}
	}
	inv.add(items...)
	if s.watch == nil {
		s.watch = beginWatch(ctx, s.c, inv.ids(), s.log)
	}
	return steps(
		func() error { return saveInventory(ctx, s.c, inv, r.namespace) },
		point("rollout.widened"),
		func() error { return s.applyAll(ctx, r, inv) },
		point("rollout.applied"),
		func() error { return s.waitHealthy(ctx, r.ids()) },
		func() error { return s.awaitEnding(ctx, r.ids()) },
		point("rollout.healthy"),
		func() error { return s.prune(ctx, inv, r) },
		point("rollout.pruned"),
		func() error { return s.saveShipped(ctx, app, r.namespace, shipped) },
		point("rollout.shipped"),
		func() error {
			inv.Changes = changesOf(req).Fingerprint()
			return saveInventory(ctx, s.c, inv, r.namespace)
		},
		point("rollout.narrowed"),
		func() error { return dropInventories(ctx, s.c, inv, r.namespace) },
	)
}

// prepare reads the release, its images, the archive of its manifests, and the inventory,
// and checks the namespace if the release is strict. Nothing changes.
func (s *session) prepare(ctx context.Context, req submodules.Request, strict bool) (r *release, inv *inventory, shipped []byte, err error) {
	if r, err = s.readRelease(ctx, req.App, req.Dir, strict); err != nil {
		return nil, nil, nil, err
	}
	if r.pins, err = pins(req); err != nil {
		return nil, nil, nil, err
	}
	if shipped, err = manifest.Pack(req.Dir); err != nil {
		return nil, nil, nil, err
	}
	if inv, err = loadInventory(ctx, s.c, req.App, r.namespace); err != nil {
		return nil, nil, nil, err
	}
	if strict {
		if err = s.checkNamespace(ctx, inv); err == nil {
			err = s.checkOthers(ctx, r)
		}
		if err == nil {
			err = s.checkSelectors(ctx, r)
		}
		if err == nil {
			err = s.checkPorts(r)
		}
	}
	return r, inv, shipped, err
}

// steps runs steps in order until one fails.
func steps(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// point is a place between two steps where a test can end the program.
func point(name string) func() error { return func() error { return durable.Point(name) } }

func (r *release) ids() []cluster.ID {
	ids := make([]cluster.ID, len(r.objects))
	for i, p := range r.objects {
		ids[i] = p.id
	}
	return ids
}

// items returns the release's objects as inventory items.
func (r *release) items(inv *inventory) []item {
	items := make([]item, len(r.objects))
	for i, p := range r.objects {
		items[i] = item{ID: p.id, Adopted: p.live != nil && p.live.other}
		if old := inv.find(p.id); old != nil {
			items[i].Adopted, items[i].Made, items[i].Before = old.Adopted, old.Made, old.Before
		}
	}
	return items
}

// checkNamespace refuses the cluster's own namespaces. It also refuses a namespace
// that an artifact's metadata names if it holds objects of others, because a release
// would take them over. A namespace that mender-app created, or that already has the
// application, is allowed.
func (s *session) checkNamespace(ctx context.Context, inv *inventory) error {
	ns := s.namespace()
	if s.set.namespaceAllowed(ns) {
		return nil
	}
	refuse := func(why string) error {
		return submodules.Mark(fmt.Errorf("the namespace %s %s: refused unless K8S_ALLOW_NAMESPACES in %s allows it", ns, why, ConfigName), submodules.ErrContent)
	}
	switch ns {
	case "kube-system", "kube-public", "kube-node-lease":
		return refuse("is the cluster's own")
	}
	if !s.set.Asked || slices.Contains(inv.Places, ns) {
		return nil
	}
	o, err := s.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: ns})
	if err != nil || o == nil || o.GetLabels()[marks.CreatedFor] != "" {
		return err
	}
	return refuse("was not made by mender-app, and the artifact's metadata asks for it")
}

// ensureNamespace creates the application's namespace if it does not exist.
func (s *session) ensureNamespace(ctx context.Context, app, ns string) (created bool, err error) {
	i := cluster.ID{Kind: "Namespace", Name: ns}
	o, err := s.c.Get(ctx, i)
	if err == nil && o != nil && o.GetDeletionTimestamp() != nil && o.GetLabels()[marks.CreatedFor] == marks.Value(app) {
		// An earlier call of ours ended while the namespace was being deleted.
		if _, err = s.awaitGone(ctx, []cluster.ID{i}, nil); err == nil {
			o, err = s.c.Get(ctx, i)
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
	m, err := s.c.Mapping(ctx, "", "Namespace", "v1")
	if err != nil {
		return false, err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": ns, "labels": map[string]string{marks.CreatedFor: marks.Value(app)}},
	})
	if err != nil {
		return false, err
	}
	if _, err := s.c.Apply(ctx, m, i, body); err != nil {
		return false, fmt.Errorf("create namespace %s: %w", ns, err)
	}
	return true, s.awaitAccount(ctx, ns)
}

// awaitAccount waits until a new namespace has the account that pods run under:
// without it the API server refuses a Pod. It does not wait long, because some
// clusters make no account.
func (s *session) awaitAccount(ctx context.Context, ns string) error {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		o, err := s.c.Get(ctx, cluster.ID{Kind: "ServiceAccount", Namespace: ns, Name: "default"})
		if err != nil || o != nil {
			return err
		}
		if err := cluster.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// warnNodes warns that images are only on this node, if the cluster has several.
func (s *session) warnNodes(ctx context.Context) {
	if s.set.Registry != nil {
		return
	}
	nodes, err := s.c.List(ctx, "", "Node", "", "")
	if err == nil && len(nodes) > 1 {
		s.log("warning: this cluster has %d nodes; the images are on this one only, pods on others cannot start from them; K8S_IMAGE_TARGET in %s may name a registry for all", len(nodes), ConfigName)
	}
}

// applyAll applies the release, rank by rank, and waits until namespaces and custom
// resource definitions take effect.
func (s *session) applyAll(ctx context.Context, r *release, inv *inventory) error {
	for rest := r.objects; len(rest) > 0; {
		rank := manifest.Rank(rest[0].Kind)
		n := slices.IndexFunc(rest, func(p *planned) bool { return manifest.Rank(p.Kind) != rank })
		if n < 0 {
			n = len(rest)
		}
		wave := rest[:n]
		rest = rest[n:]
		if err := cluster.Each(ctx, n, func(ctx context.Context, i int) error { return s.applyOne(ctx, r, wave[i], inv) }); err != nil {
			return err
		}
		ids := make([]cluster.ID, n)
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
			s.c.Mapper.Reset()
		}
	}
	return nil
}

// awaitClaims gives volume claims a moment to be bound: the time that a pod waits
// for one counts towards its Deployment's deadline. waitHealthy decides in the end
// whether they are bound.
func (s *session) awaitClaims(ctx context.Context, ids []cluster.ID) error {
	var all []*waiting
	for _, i := range ids {
		all = append(all, &waiting{id: i})
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		pending, err := s.poll(ctx, all)
		if err != nil || len(pending) == 0 {
			return err
		}
		if err := cluster.Sleep(ctx, s.pause()); err != nil {
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
	if p.live != nil && p.live.shared && !p.replace {
		if err := s.c.TakeFields(ctx, p.mapping, p.id); err != nil {
			return err
		}
	}
	if err := durable.Point("rollout.apply"); err != nil {
		return err
	}
	o, err := s.c.Apply(ctx, p.mapping, p.id, p.data)
	// A definition that was just applied is served a moment later.
	for end := time.Now().Add(15 * time.Second); err != nil && notServedYet(err) && r.redefines(p) && time.Now().Before(end); {
		if serr := cluster.Sleep(ctx, 200*time.Millisecond); serr != nil {
			break
		}
		o, err = s.c.Apply(ctx, p.mapping, p.id, p.data)
	}
	if err != nil {
		return s.explain(r.dir, p, err)
	}
	return s.unstop(ctx, p.id, o, p.JSON)
}

// notServedYet reports whether an object was refused because the old definition, or
// none, is still served.
func notServedYet(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// awaitMapping waits for a kind whose definition was just applied: discovery learns
// of it a moment later.
func (s *session) awaitMapping(ctx context.Context, p *planned) (*meta.RESTMapping, error) {
	for end := time.Now().Add(15 * time.Second); ; {
		m, err := s.c.Mapping(ctx, p.Group(), p.Kind, p.Version())
		if err == nil || !meta.IsNoMatchError(err) {
			return m, err
		}
		if time.Now().After(end) {
			return nil, p.Errorf("its CustomResourceDefinition does not serve %s", p.APIVersion)
		}
		if err := cluster.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
		s.c.Mapper.Reset()
	}
}

// replace deletes a changed Job or Pod and waits until it is gone, so that the new
// one can be created.
func (s *session) replace(ctx context.Context, p *planned) error {
	if err := s.c.Remove(ctx, p.id, p.live.uid); err != nil {
		return err
	}
	gone, err := s.awaitGone(ctx, []cluster.ID{p.id}, map[cluster.ID]types.UID{p.id: p.live.uid})
	if err == nil && !gone {
		err = p.Errorf("the old one does not end")
	}
	return err
}
