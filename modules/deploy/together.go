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
	Meta    *artifact.Metadata
	Payload modules.Streams
	// Trust is as in deploy.Engine, for the signer of this artifact.
	Trust func(application string, s *statement.Signed) error
	io.Closer
}

// members is the members of the leader's open deployment, and what can be done with one.
type members struct {
	Leader *store.App
	Open   func(application string) (*store.App, error)
	// Load begins the deployment of a member, and loads its release.
	Load   func(ctx context.Context, m store.Member) (*store.App, error)
	Handle eventHandler
}

// eventHandler handles an event of an application, about an artifact.
type eventHandler func(ctx context.Context, a *store.App, ev journal.Event, artifact string) error

// Is identifies this leader in its members' journals.
func (g members) Is() store.Leader {
	d := g.Leader.Deployment
	return store.Leader{Application: g.Leader.Name, Number: d.Number, Release: d.To}
}

// member opens a member; nil if it has no deployment that follows this leader.
func (g members) member(m store.Member) (*store.App, error) {
	a, err := g.Open(m.Application)
	if errors.Is(err, store.ErrNoApp) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d := a.Deployment; d == nil || d.Leader == nil || *d.Leader != g.Is() {
		return nil, nil
	}
	return a, nil
}

// Install installs the members in their order, each up to its commit. After a kill it goes
// on with what is there.
func (g members) Install(ctx context.Context) error {
	for _, m := range g.Leader.Deployment.Members {
		if err := g.install(ctx, m); err != nil {
			return fmt.Errorf("%s (%s), which has to be installed first: %w", m.Application, m.ArtifactName, err)
		}
	}
	return nil
}

func (g members) install(ctx context.Context, m store.Member) error {
	a, err := g.member(m)
	if err == nil && a != nil && !goesOn[journal.Phase(a.Deployment.Phase)] {
		err, a = g.undo(ctx, a), nil
	}
	if err != nil {
		return err
	}
	if a == nil {
		if a, err = g.Load(ctx, m); err != nil {
			return err
		}
	}
	return g.Handle(ctx, a, journal.EventInstall, m.ArtifactName)
}

// goesOn are the phases in which an interrupted installation of a member goes on.
var goesOn = map[journal.Phase]bool{journal.Loaded: true, journal.Installing: true, journal.Installed: true}

// Undo undoes what of the members was begun, the last one first. One that cannot be undone
// does not keep the others.
func (g members) Undo(ctx context.Context) (err error) {
	for _, m := range slices.Backward(g.Leader.Deployment.Members) {
		a, merr := g.member(m)
		if merr == nil && a != nil {
			merr = g.undo(ctx, a)
		}
		if merr != nil {
			err = errors.Join(err, fmt.Errorf("%s, which was installed first, cannot be undone: %w", m.Application, merr))
		}
	}
	return err
}

func (g members) undo(ctx context.Context, a *store.App) error { return undoMember(ctx, a, g.Handle) }

func undoMember(ctx context.Context, a *store.App, handle eventHandler) error {
	name := a.Deployment.ArtifactName
	if err := handle(ctx, a, journal.EventRollback, name); err != nil {
		return err
	}
	return handle(ctx, a, journal.EventCleanup, name)
}

// settleMember ends the deployment of a member without its leader's: the leader's is gone.
func settleMember(ctx context.Context, s *store.Store, a *store.App, handle eventHandler) error {
	if fateOf(s, a.Deployment.Leader) == leaderCommitted {
		return handle(ctx, a, journal.EventFollow, a.Deployment.ArtifactName)
	}
	return undoMember(ctx, a, handle)
}

// Commit commits the members and cleans up: the leader is committed.
func (g members) Commit(ctx context.Context) error {
	return g.each(func(a *store.App) error {
		return g.Handle(ctx, a, journal.EventFollow, a.Deployment.ArtifactName)
	})
}

// Check makes sure with check, before the leader is committed, that the members are well.
func (g members) Check(check func(a *store.App) error) error { return g.each(check) }

func (g members) each(work func(a *store.App) error) error {
	for _, m := range g.Leader.Deployment.Members {
		a, err := g.member(m)
		if err == nil && a != nil {
			err = work(a)
		}
		if err != nil {
			return fmt.Errorf("%s, which was installed first: %w", m.Application, err)
		}
	}
	return nil
}

// Apps are the leader and its members that are installed so far, for the policies of the
// next ones: as they will be.
func (g members) Apps(read func(a *store.App, id string) (*store.Release, *policy.Policy)) (list []policy.App, err error) {
	add := func(a *store.App) {
		if r, p := read(a, a.Deployment.To); r != nil {
			list = append(list, policy.App{Name: a.Name, Version: r.Version, Release: r.ID, Policy: p})
		}
	}
	add(g.Leader)
	return list, g.each(func(a *store.App) error { add(a); return nil })
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
