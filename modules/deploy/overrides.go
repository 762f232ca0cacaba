package deploy

import (
	"context"
	"errors"

	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// SetOverrides replaces what an operator changes in the manifests of an application, in
// all releases that keep it (keep.overrides); with "" nothing is changed. It returns when
// the application is healthy as it is then; if it does not get so, the overrides of before
// come back. A stopped application stays stopped.
func (e *Engine) SetOverrides(ctx context.Context, name, text string) error {
	t, release, err := e.operate(ctx, name, "overrides of "+name)
	if err != nil {
		return err
	}
	defer release()
	if text != "" {
		before := t.a.Overrides
		t.a.Overrides = &store.Overrides{Text: text, Release: t.a.Current}
		err := t.checkManifests(ctx, t.a.ReleaseManifests(t.r.ID))
		t.a.Overrides = before
		if err != nil {
			return err
		}
	}
	return t.decide(ctx, "the overrides are taken back", func() (func() error, error) { return settings.ChooseLayer(t.a, text) })
}

// asStarted reports whether the current release would be started as it was started last,
// and nothing of it was changed since.
func (t *target) asStarted(ctx context.Context) (bool, error) {
	req := t.request()
	if settings.LayersFingerprint(req.Overrides) != t.a.Applied || settings.ValuesFingerprint(req.Values) != t.a.Values {
		return false, nil
	}
	if !t.info.Has(submodules.FeatureCheck) {
		return true, nil
	}
	c, err := t.client().Check(ctx, req)
	return len(c.Starts)+len(c.Restarts)+len(c.Removes) == 0, err
}

// checkManifests lets the sub-module check the release in dir as ROLLOUT would, and makes
// sure that the overrides fit it. A sub-module without the feature check/1 checks
// manifests in ROLLOUT alone.
func (t *target) checkManifests(ctx context.Context, dir string) error {
	layers, err := settings.Layers(t.e.Log, t.e.OverridesDir, t.stored(), t.app, t.r)
	if err != nil {
		return unfit("overrides of %s: %w", t.app, err)
	}
	if err := settings.LacksOverrides(t.app, layers, t.info, t.r.Orchestrator); err != nil {
		return unfit("overrides of %s: %w", t.app, err)
	}
	if !t.info.Has(submodules.FeatureCheck) {
		return nil
	}
	req := t.request()
	req.Dir = dir
	_, err = t.client().Check(ctx, req)
	if errors.Is(err, submodules.ErrContent) && len(layers) > 0 {
		return unfit("%w", settings.UnfitLayers(t.app, t.r.ID, layers, err))
	}
	if errors.Is(err, submodules.ErrContent) {
		return unfit("%w", err)
	}
	return err
}
