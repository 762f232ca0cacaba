package deploy

import (
	"context"
	"fmt"

	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// joint is what an artifact is installed together with.
type joint struct {
	members []store.Member   // that have to be installed first
	needs   []diskspace.Need // theirs and its own, from the check of the space on

	// Of a member:
	leader *store.Leader
	with   []policy.App // the leader, and the members before this one, as they will be
	trust  func(application string, s *statement.Signed) error
}

// checkFirst makes the checks of staged artifacts that have to be installed before app.
func (p *preflight) checkFirst(ctx context.Context, app policy.App, first []policy.Staged) error {
	with := []policy.App{app}
	for _, s := range first {
		m := store.Member{Application: s.Name, ArtifactName: s.Release}
		err := p.checkMember(ctx, m, with)
		if err != nil {
			return fmt.Errorf("depends of %s: %s (%s), which has to be installed first: %w", app.Name, m.Application, m.ArtifactName, err)
		}
		p.e.Log.Info("a staged artifact has to be installed first", "app", app.Name, "needs", m.Application, "artifact", m.ArtifactName)
		p.members, with = append(p.members, m), append(with, s.App)
	}
	return nil
}

func (p *preflight) checkMember(ctx context.Context, m store.Member, with []policy.App) error {
	x, err := p.e.Staged.Open(m.Application, m.ArtifactName)
	if err != nil {
		return err
	}
	defer x.Close()
	one := p.e.preflightOf(m, x, &store.Leader{}, with)
	one.unlocked, one.needs = p.unlocked, p.needs
	err = one.run(ctx)
	p.needs = one.needs
	return err
}

// preflightOf prepares the checks of a member.
func (e *Engine) preflightOf(m store.Member, x *StagedArtifact, leader *store.Leader, with []policy.App) *preflight {
	p := &preflight{e: e, h: &header{Artifact: m.ArtifactName, Provides: x.Provides, Meta: x.Meta}}
	p.leader, p.with, p.trust = leader, with, x.Trust
	return p
}

// checkMember is check for a member, which then waits for its leader's commit in this boot.
func (e *Engine) checkMember(ctx context.Context, a *store.App) error {
	if err := e.check(ctx, a); err != nil || a.Deployment.BootID == e.bootID() {
		return err
	}
	return e.enter(a, journal.Installed)
}

// inOrder sorts applications for what ends deployments: members after their leaders.
func (e *Engine) inOrder(names []string) []string {
	return membersLast(e.Store, facts.InOrder(e.Store, e.Log, names))
}

// open is the ErrOpen of a deployment.
func open(d *store.Deployment) error {
	if l := d.Leader; l != nil {
		return fmt.Errorf("%w: %s is %s and follows the update of %s", ErrOpen, d.ArtifactName, d.Phase, l.Application)
	}
	return fmt.Errorf("%w: %s is %s", ErrOpen, d.ArtifactName, d.Phase)
}
