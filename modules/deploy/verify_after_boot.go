package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/deploy/files"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file verifies images again after a restart of the machine. Engines do not
// sync the files that they unpack. After a power cut, an engine may list an image
// whose files are empty, if no barrier had made it durable. Two things are
// therefore verified:
//
//   - components of an interrupted download. Deleting them is not enough: the
//     engine may keep a layer whose image was not made yet, and regard it as
//     present when the next image has the same layer. So the layers are recorded
//     as suspects (store.Suspect) until they have been verified once, or until a
//     barrier of the same boot has made them durable;
//   - a release that was loaded or installed before the restart and is about to
//     be installed or committed (reverify).
//
// This reads the images in question once. A current or kept release was made
// durable before, and is not read.

// suspect records the components of a release that is discarded before its
// barrier.
func (e *Engine) suspect(r *store.Release) error {
	boot := r.BootID
	if boot == "" {
		boot = "unknown" // an older version did not record it
	}
	s := store.Suspect{BootID: boot, Orchestrator: r.Orchestrator}
	for _, c := range r.Components {
		if c.Digest != "" && !slices.Contains(s.Digests, c.Digest) {
			s.Digests = append(s.Digests, c.Digest)
		}
		for _, l := range c.DiffIDs {
			if !slices.Contains(s.Layers, l) {
				s.Layers = append(s.Layers, l)
			}
		}
	}
	if len(s.Digests) == 0 {
		return nil
	}
	list, err := e.Store.Suspects()
	var corrupt *store.CorruptError
	if err != nil && !errors.As(err, &corrupt) {
		return err
	}
	list = slices.DeleteFunc(list, func(x store.Suspect) bool {
		return x.BootID == s.BootID && x.Orchestrator == s.Orchestrator && slices.Equal(x.Digests, s.Digests) && slices.Equal(x.Layers, s.Layers)
	})
	return e.Store.PutSuspects(append(list, s))
}

// dropDurableSuspects drops the suspects that a barrier of this boot has made durable. If the
// list cannot be written, they are verified once more than necessary.
func (e *Engine) dropDurableSuspects(orchestrator string) {
	e.dropSuspects(func(s *store.Suspect) {
		if s.Orchestrator == orchestrator && s.BootID == e.bootID() {
			s.Digests, s.Layers = nil, nil
		}
	})
}

// dropSuspects calls drop for each entry of the list of suspects, to remove
// digests and layers from it. It writes the list if anything was removed.
func (e *Engine) dropSuspects(drop func(*store.Suspect)) {
	list, err := e.Store.Suspects()
	if err != nil || len(list) == 0 {
		return
	}
	n := 0
	for i := range list {
		before := len(list[i].Digests) + len(list[i].Layers)
		drop(&list[i])
		n += before - len(list[i].Digests) - len(list[i].Layers)
	}
	if n == 0 {
		return
	}
	if err := e.Store.PutSuspects(list); err != nil {
		e.Log.Warn("the list of suspect components could not be written", "error", err)
	}
}

// isSuspect reports whether a component has a digest or a layer that is a suspect
// of an earlier boot. If the component's layers are unknown, any suspect of its
// orchestrator counts.
func (e *Engine) isSuspect(orchestrator string, c store.Component) bool {
	list, err := e.Store.Suspects()
	if err != nil {
		e.Log.Warn("the list of suspect components cannot be read: all are verified", "error", err)
		return true
	}
	return slices.ContainsFunc(list, func(s store.Suspect) bool {
		switch {
		case s.Orchestrator != orchestrator || s.BootID == e.bootID():
			return false // the barrier of this boot makes it durable
		case len(c.DiffIDs) == 0 && !files.Is(c) || slices.Contains(s.Digests, c.Digest):
			return true
		}
		return slices.ContainsFunc(c.DiffIDs, func(l digest.Digest) bool { return slices.Contains(s.Layers, l) })
	})
}

// clearSuspect verifies a suspect component that has just been loaded, and
// removes it from the list of suspects. A damaged one is deleted: otherwise the
// next LOAD would regard it as present.
func (t *target) clearSuspect(ctx context.Context, c store.Component) error {
	e, a := t.e, t.a
	if !t.info.Has(submodules.FeatureVerify) {
		e.Log.Warn("a component may be damaged since the machine lost power, and the sub-module cannot verify it", "app", a.Name, "component", c.URL)
		return nil
	}
	e.Log.Info("the machine lost power while this was being loaded: verifying", "app", a.Name, "component", c.URL)
	one := t.only(c)
	problems, err := one.verify(ctx)
	if err != nil {
		return err
	}
	if len(problems) == 0 {
		e.dropSuspects(func(s *store.Suspect) {
			s.Digests = slices.DeleteFunc(s.Digests, func(d digest.Digest) bool { return d == c.Digest })
			s.Layers = slices.DeleteFunc(s.Layers, func(l digest.Digest) bool { return slices.Contains(c.DiffIDs, l) })
		})
		return nil
	}
	used, err := e.inUse(a, t.r.ID, t.info.Has(submodules.FeatureComponents))
	if err != nil {
		return err
	}
	if _, stays := used(c); stays {
		return submodules.Mark(fmt.Errorf("it is damaged in the engine (%s), and another release needs it: run mender-app verify --repair", problems[0]), submodules.ErrContent)
	}
	if err := e.deleteComponents(ctx, a, one.r); err != nil {
		return err
	}
	return submodules.Mark(fmt.Errorf("it is damaged in the engine since the machine lost power (%s), and has been deleted: install the artifact again", problems[0]), submodules.ErrContent)
}

// reverify verifies the release that is about to be started or committed, if the
// machine was restarted since the last entry in the journal. The barrier had made
// the release durable; this finds a disk that lost it anyway, while the previous
// release is still there.
func (e *Engine) reverify(ctx context.Context, a *store.App) error {
	d := a.Deployment
	if d.BootID == e.bootID() {
		return nil
	}
	t, err := e.target(ctx, a, d.To)
	if err != nil {
		return err
	}
	if !t.info.Has(submodules.FeatureVerify) {
		e.Log.Warn("the machine was restarted, and the sub-module cannot verify what it has loaded", "app", a.Name)
		return nil
	}
	e.Log.Info("the machine was restarted in the middle of the deployment: verifying what was loaded", "app", a.Name, "release", t.r.ID)
	problems, err := t.verify(ctx)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return submodules.Mark(fmt.Errorf("release %s is damaged since the machine was restarted: %s", t.r.ID, problems[0]), submodules.ErrContent)
	}
	return nil
}
