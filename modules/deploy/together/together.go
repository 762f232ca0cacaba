// Package together installs, undoes and commits the members of a deployment: the staged
// artifacts of other applications that its policy wants installed first. The deployment
// that asked is their leader.
//
// There is no state of the whole. The leader's journal lists the members, and the journal
// of each member names the leader. A member is deployed as any other application, up to
// the commit. From then on it follows the leader, whose commit is one write: members are
// committed in the leader's cleanup, and undone, the last one first, before the leader
// says that it is rolled back. So a kill at any point leaves a leader that is still open
// and does the rest again.
package together

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/deploy/transition"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// Staged is where artifacts lie that can be installed first.
type Staged interface {
	// List lists those that can be read, the newest of each application first.
	List() ([]policy.Staged, error)
	// Open opens one. Its header and signature are verified; its payload is when it has
	// been read to the end.
	Open(application, artifactName string) (*Artifact, error)
}

// Artifact is a staged artifact.
type Artifact struct {
	Meta    *artifact.Metadata
	Payload modules.Streams
	// Trust is as in deploy.Engine, for the signer of this artifact.
	Trust func(application string, s *statement.Signed) error
	io.Closer
}

// Group is the members of the leader's open deployment, and what can be done with one.
type Group struct {
	Leader *store.App
	Open   func(application string) (*store.App, error)
	// Load begins the deployment of a member, and loads its release.
	Load   func(ctx context.Context, m store.Member) (*store.App, error)
	Handle Handler
}

// Handler handles an event of an application, about an artifact.
type Handler func(ctx context.Context, a *store.App, ev transition.Event, artifact string) error

// Is is what the journals of the members say of the leader.
func (g Group) Is() store.Leader {
	d := g.Leader.Deployment
	return store.Leader{Application: g.Leader.Name, Number: d.Number, Release: d.To}
}

// member opens a member; nil if it has no deployment that follows this leader.
func (g Group) member(m store.Member) (*store.App, error) {
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
func (g Group) Install(ctx context.Context) error {
	for _, m := range g.Leader.Deployment.Members {
		if err := g.install(ctx, m); err != nil {
			return fmt.Errorf("%s (%s), which has to be installed first: %w", m.Application, m.ArtifactName, err)
		}
	}
	return nil
}

func (g Group) install(ctx context.Context, m store.Member) error {
	a, err := g.member(m)
	if err == nil && a != nil && !goesOn[transition.Phase(a.Deployment.Phase)] {
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
	return g.Handle(ctx, a, transition.EventInstall, m.ArtifactName)
}

// goesOn are the phases in which an interrupted installation of a member goes on.
var goesOn = map[transition.Phase]bool{transition.Loaded: true, transition.Installing: true, transition.Installed: true}

// Undo undoes what of the members was begun, the last one first. One that cannot be undone
// does not keep the others.
func (g Group) Undo(ctx context.Context) (err error) {
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

func (g Group) undo(ctx context.Context, a *store.App) error { return undo(ctx, a, g.Handle) }

func undo(ctx context.Context, a *store.App, handle Handler) error {
	name := a.Deployment.ArtifactName
	if err := handle(ctx, a, transition.EventRollback, name); err != nil {
		return err
	}
	return handle(ctx, a, transition.EventCleanup, name)
}

// Settle ends the deployment of a member without its leader's: the leader's is gone.
func Settle(ctx context.Context, s *store.Store, a *store.App, handle Handler) error {
	if FateOf(s, a.Deployment.Leader) == Commits {
		return handle(ctx, a, transition.EventFollow, a.Deployment.ArtifactName)
	}
	return undo(ctx, a, handle)
}

// Commit commits the members and cleans up: the leader is committed.
func (g Group) Commit(ctx context.Context) error {
	return g.each(func(a *store.App) error {
		return g.Handle(ctx, a, transition.EventFollow, a.Deployment.ArtifactName)
	})
}

// Check makes sure with check, before the leader is committed, that the members are well.
func (g Group) Check(check func(a *store.App) error) error { return g.each(check) }

func (g Group) each(work func(a *store.App) error) error {
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
func (g Group) Apps(read func(a *store.App, id string) (*store.Release, *policy.Policy)) (list []policy.App, err error) {
	add := func(a *store.App) {
		if r, p := read(a, a.Deployment.To); r != nil {
			list = append(list, policy.App{Name: a.Name, Version: r.Version, Release: r.ID, Policy: p})
		}
	}
	add(g.Leader)
	return list, g.each(func(a *store.App) error { add(a); return nil })
}

// Fate is what happens to a member.
type Fate int

// The fates.
const (
	Waits   Fate = iota // the leader's deployment is open
	Commits             // the leader is committed
	Undone              // it is not, and its deployment is gone
)

// FateOf says what happens to a member whose journal names this leader. The deployment of
// a leader ends after those of its members, so the last two come of damage alone.
func FateOf(s *store.Store, l *store.Leader) Fate {
	a, err := s.App(l.Application)
	switch {
	case errors.Is(err, store.ErrNoApp):
		return Undone
	case err != nil:
		return Waits // until it can be read
	case a.Deployment != nil && a.Deployment.Number == l.Number:
		return Waits
	case a.Current == l.Release:
		return Commits
	}
	return Undone
}

// Waiting reports whether an application's open deployment is that of a member whose leader
// decides.
func Waiting(s *store.Store, a *store.App) bool {
	return a.Deployment.Leader != nil && FateOf(s, a.Deployment.Leader) == Waits
}

// Gone reports whether an application is gone, as one is whose first installation was undone
// with its leader's.
func Gone(s *store.Store, name string) bool {
	_, err := s.App(name)
	return errors.Is(err, store.ErrNoApp)
}

// Last sorts applications so that those whose open deployment follows another one come
// last: then their leaders have been looked at.
func Last(s *store.Store, names []string) []string {
	follows := map[string]bool{}
	for _, name := range names {
		if a, err := s.App(name); err == nil && a.Deployment != nil && a.Deployment.Leader != nil {
			follows[name] = true
		}
	}
	list := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return follows[name] })
	return append(list, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !follows[name] })...)
}
