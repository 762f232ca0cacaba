package deploy

import (
	"cmp"
	"errors"
	"log/slog"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// This file compares an artifact with the current release of its application.

// checkInstalled refuses to move an application from one orchestrator to another, because
// nothing would stop it in the old one. With refuseOlder it also refuses an older
// version. A refusal is a ErrUnfit.
func checkInstalled(s *store.Store, log *slog.Logger, m *artifact.Metadata, refuseOlder bool) error {
	a, err := s.App(m.ApplicationName)
	if errors.Is(err, store.ErrNoApp) {
		return sameOrchestrator(m, cmp.Or(s.LegacyOrchestrator(m.ApplicationName), m.Orchestrator))
	}
	if err != nil {
		return err
	}
	if dir := a.Rival(); dir != "" {
		return unfit("mender-container-modules has installed a project %s too, in %s: give the application another name, or remove that directory and the module", a.Name, dir)
	}
	if a.Current == "" {
		return nil
	}
	r, err := a.Release(a.Current)
	if err != nil {
		// Continue: a new release may be the only way to repair this.
		log.Error("the current release cannot be read; a rollback to it will not be possible", "app", a.Name, "error", err)
		return nil
	}
	if err := sameOrchestrator(m, r.Orchestrator); err != nil {
		return err
	}
	if refuseOlder {
		if err := policy.CheckNotOlder(m.ApplicationName, m.ApplicationVersion, r.Version); err != nil {
			return unfit("%w", err)
		}
	}
	return nil
}

func sameOrchestrator(m *artifact.Metadata, installed string) error {
	if installed == m.Orchestrator {
		return nil
	}
	return unfit("%s runs under %s and the artifact is for %s: give the application another name", m.ApplicationName, installed, m.Orchestrator)
}
