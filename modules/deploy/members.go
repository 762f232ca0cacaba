package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// This file installs, undoes and commits the members of a deployment: the staged
// artifacts of other applications that its policy wants installed first. The deployment
// that asked is their leader.
//
// There is no state of the whole. The leader's journal lists the members, and the journal
// of each member names the leader. A member is deployed as any other application, up to
// the commit. From then on it follows the leader, whose commit is one write: members are
// committed in the leader's cleanup, and undone, the last one first, before the leader
// says that it is rolled back. So a kill at any point leaves a leader that is still open
// and does the rest again.

// Staged is where artifacts lie that can be installed first.
type Staged interface {
	// List lists those that can be read, the newest of each application first.
	List() ([]policy.Staged, error)
	// Open opens one. Its header and signature are verified; its payload is when it has
	// been read to the end.
	Open(application, artifactName string) (*StagedArtifact, error)
}

// StagedArtifact is a staged artifact.
type StagedArtifact struct {
	Meta     *artifact.Metadata
	Provides map[string]string // what a client records when it commits
	Payload  modules.Streams
	// Trust is as in deploy.Engine, for the signer of this artifact.
	Trust func(application string, s *statement.Signed) error
	io.Closer
}

// leaderOf identifies this leader in its members' journals.
func leaderOf(leader *store.App) store.Leader {
	d := leader.Deployment
	return store.Leader{Application: leader.Name, Number: d.Number, Release: d.To}
}

// member opens a member; nil if it has no deployment that follows this leader.
func (e *Engine) member(leader *store.App, m store.Member) (*store.App, error) {
	a, err := e.open(m.Application)
	if errors.Is(err, store.ErrNoApp) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d := a.Deployment; d == nil || d.Leader == nil || *d.Leader != leaderOf(leader) {
		return nil, nil
	}
	return a, nil
}

// installMembers installs the members in their order, each up to its commit. After a kill it
// goes on with what is there.
func (e *Engine) installMembers(ctx context.Context, leader *store.App) error {
	for _, m := range leader.Deployment.Members {
		if err := e.installMember(ctx, leader, m); err != nil {
			return fmt.Errorf("%s (%s), which has to be installed first: %w", m.Application, m.ArtifactName, err)
		}
	}
	return nil
}

func (e *Engine) installMember(ctx context.Context, leader *store.App, m store.Member) error {
	a, err := e.member(leader, m)
	if err == nil && a != nil && !goesOn[a.Deployment.Phase] {
		err, a = e.undoMember(ctx, a), nil
	}
	if err != nil {
		return err
	}
	if a == nil {
		if a, err = e.loadMember(ctx, leader, m); err != nil {
			return err
		}
	}
	return e.handleEvent(ctx, a, journal.EventInstall, m.ArtifactName)
}

// goesOn are the phases in which an interrupted installation of a member goes on.
var goesOn = map[journal.Phase]bool{journal.Loaded: true, journal.Installing: true, journal.Installed: true}

// loadMember begins the deployment of a member, and loads its release.
func (e *Engine) loadMember(ctx context.Context, leader *store.App, m store.Member) (*store.App, error) {
	with, err := e.withMembers(leader)
	if err != nil {
		return nil, err
	}
	x, err := e.Staged.Open(m.Application, m.ArtifactName)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	follows := leaderOf(leader)
	return e.load(ctx, e.preflightOf(m, x, &follows, with), x.Payload)
}

// withMembers are the leader and its members that are installed so far, for the policies of
// the next ones: as they will be.
func (e *Engine) withMembers(leader *store.App) (list []policy.App, err error) {
	add := func(a *store.App) {
		if r, err := a.Release(a.Deployment.To); err == nil {
			list = append(list, policy.App{Name: a.Name, Version: r.Version, Release: r.ID, Policy: facts.PolicyOf(e.Log, a.Name, r)})
		}
	}
	add(leader)
	err = e.eachMember(leader, func(a *store.App) error { add(a); return nil })
	return list, err
}

// undoMembers undoes what of the members was begun, the last one first. One that cannot be
// undone does not keep the others.
func (e *Engine) undoMembers(ctx context.Context, leader *store.App) (err error) {
	for _, m := range slices.Backward(leader.Deployment.Members) {
		a, merr := e.member(leader, m)
		if merr == nil && a != nil {
			merr = e.undoMember(ctx, a)
		}
		if merr != nil {
			err = errors.Join(err, fmt.Errorf("%s, which was installed first, cannot be undone: %w", m.Application, merr))
		}
	}
	return err
}

func (e *Engine) undoMember(ctx context.Context, a *store.App) error {
	name := a.Deployment.ArtifactName
	if err := e.handleEvent(ctx, a, journal.EventRollback, name); err != nil {
		return err
	}
	return e.handleEvent(ctx, a, journal.EventCleanup, name)
}

// settleMember ends the deployment of a member without its leader's: the leader's is gone.
func (e *Engine) settleMember(ctx context.Context, a *store.App) error {
	if fateOf(e.Store, a.Deployment.Leader) == leaderCommitted {
		return e.commitMember(ctx, a)
	}
	return e.undoMember(ctx, a)
}

// commitMembers commits the members and cleans up: the leader is committed.
func (e *Engine) commitMembers(ctx context.Context, leader *store.App) error {
	return e.eachMember(leader, func(a *store.App) error { return e.commitMember(ctx, a) })
}

func (e *Engine) commitMember(ctx context.Context, a *store.App) error {
	return e.handleEvent(ctx, a, journal.EventFollow, a.Deployment.ArtifactName)
}

// checkMembers makes sure, before the leader is committed, that the members are well.
func (e *Engine) checkMembers(ctx context.Context, leader *store.App) error {
	return e.eachMember(leader, func(a *store.App) error { return e.checkMember(ctx, a) })
}

func (e *Engine) eachMember(leader *store.App, work func(a *store.App) error) error {
	for _, m := range leader.Deployment.Members {
		a, err := e.member(leader, m)
		if err == nil && a != nil {
			err = work(a)
		}
		if err != nil {
			return fmt.Errorf("%s, which was installed first: %w", m.Application, err)
		}
	}
	return nil
}

// fate is what happens to a member.
type fate int

// The fates.
const (
	leaderOpen      fate = iota // the leader's deployment is open
	leaderCommitted             // the leader is committed
	leaderGone                  // it is not, and its deployment is gone
)

// fateOf says what happens to a member whose journal names this leader. The deployment of
// a leader ends after those of its members, so the last two come of damage alone.
func fateOf(s *store.Store, l *store.Leader) fate {
	a, err := s.App(l.Application)
	switch {
	case errors.Is(err, store.ErrNoApp):
		return leaderGone
	case err != nil:
		return leaderOpen // until it can be read
	case a.Deployment != nil && a.Deployment.Number == l.Number:
		return leaderOpen
	case a.Current == l.Release:
		return leaderCommitted
	}
	return leaderGone
}

// waitsForLeader reports whether an application's open deployment is that of a member whose leader
// decides.
func waitsForLeader(s *store.Store, a *store.App) bool {
	return a.Deployment.Leader != nil && fateOf(s, a.Deployment.Leader) == leaderOpen
}

// isGone reports whether an application is gone, as one is whose first installation was undone
// with its leader's.
func isGone(s *store.Store, name string) bool {
	_, err := s.App(name)
	return errors.Is(err, store.ErrNoApp)
}

// membersLast sorts applications so that those whose open deployment follows another one come
// last: then their leaders have been looked at.
func membersLast(s *store.Store, names []string) []string {
	follows := map[string]bool{}
	for _, name := range names {
		if a, err := s.App(name); err == nil && a.Deployment != nil && a.Deployment.Leader != nil {
			follows[name] = true
		}
	}
	list := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return follows[name] })
	return append(list, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !follows[name] })...)
}
