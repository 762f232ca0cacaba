package deploy

import (
	"context"
	"fmt"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file verifies images again after a restart of the machine: components of an
// interrupted download (damaged.go says why), and a release that was loaded or
// installed before the restart and is about to be installed or committed (reverify).
// A current or kept release was made durable before, and is not read.

func (e *Engine) damaged() damagedList {
	return damagedList{Store: e.Store, BootID: e.bootID(), Log: e.Log}
}

// clearDamaged verifies a suspect component that has just been loaded, and
// removes it from the list of suspects. A damaged one is deleted: otherwise the
// next LOAD would regard it as present.
func (t *target) clearDamaged(ctx context.Context, c store.Component) error {
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
		e.damaged().DropVerified(c)
		return nil
	}
	used, err := referencesTo(e.Store, a, t.r.ID, t.info.Has(submodules.FeatureComponents))
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
