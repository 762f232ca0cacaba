package deploy

import (
	"context"
	"os"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// adopt takes over an application of another update module. It tags the
// application's images with references of its own, so that a rollback finds
// them.
func (e *Engine) adopt(ctx context.Context, h *header, before *target) error {
	name := h.Meta.ApplicationName
	known, err := before.client().List(ctx, legacyRequest(e.Store, name))
	if err != nil {
		e.Log.Warn("only the names of the adopted application's images are known", "app", name, "error", err)
	}
	a, err := e.Store.Adopt(name, h.Meta.Orchestrator, func(urls []string) []store.Component {
		return legacyComponents(urls, known, e.Store.LegacyOrchestrator(name) != "")
	})
	if err != nil {
		return err
	}
	e.Log.Info("adopted an application of another update module", "app", name)
	t, err := e.target(ctx, a, store.AdoptedID)
	if err != nil {
		return err
	}
	for _, c := range t.r.Components {
		if c.Digest == "" || !t.info.Has(submodules.FeatureStage) || !t.info.Has(submodules.FeatureComponents) {
			continue
		}
		// It is present: nothing is read.
		req := submodules.LoadRequest{Request: t.only(c).request(), URL: c.URL, Path: os.DevNull, Stage: true}
		if err := t.client().Load(ctx, req); err != nil {
			e.Log.Warn("an image of the adopted application could not be tagged", "app", name, "component", c.URL, "error", err)
		}
	}
	return nil
}
