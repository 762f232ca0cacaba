// Package compose runs applications with Docker Compose: the sub-module
// docker-compose.
//
// Compose semantics are the job of Compose's own command; this package checks
// before, brings up, and watches the engine until a release is healthy. Images
// are imagestore/docker's job. The package must not know artifacts, the
// deployment's journal, or Mender.
package compose

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Orchestrator is the sub-module; it implements submodules.Orchestrator.
type Orchestrator struct {
	// Sandbox makes Load take from this process, for good, what it does not need:
	// see imagestore.LoadRequest.Confine. The configuration can switch it off.
	Sandbox bool
}

var _ submodules.Orchestrator = Orchestrator{}

// session is one verb at work.
type session struct {
	req submodules.Request
	set settings
	// back is true on the way back to a release that was accepted once: the
	// operator may have refused since what it has.
	back   bool
	engine *docker.Engine
}

// open reads the settings and finds the engine. The caller closes it.
func open(ctx context.Context, r submodules.Request) (*session, error) {
	set, err := readSettings(os.Getenv, r.Logf)
	if err != nil {
		return nil, err
	}
	host, err := docker.Host(set.docker, os.Getenv)
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	engine, err := docker.Open(ctx, host, r.Log)
	if err != nil {
		return nil, err
	}
	return &session{req: r, set: set, engine: engine}, nil
}

func (s *session) close() { _ = s.engine.Close() }

// with opens a session for f.
func with(ctx context.Context, r submodules.Request, f func(*session) error) error {
	s, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer s.close()
	return f(s)
}

// Features implements submodules.Orchestrator.
func (Orchestrator) Features() []string {
	return []string{
		submodules.FeatureStream, submodules.FeatureStage, submodules.FeatureComponents,
		submodules.FeatureDelta, submodules.FeatureShared, submodules.FeatureVcdiff, submodules.FeatureVerify, submodules.FeatureSync,
		submodules.FeatureRepair, submodules.FeatureStorage, submodules.FeatureAnnounced, submodules.FeatureEngine, submodules.FeatureSecrets,
	}
}

// Reqs implements submodules.Orchestrator. It also makes sure that the engine
// answers and that a Compose is there which will do: an update that would fail
// for the want of them is refused before anything is loaded.
func (Orchestrator) Reqs(ctx context.Context, r submodules.Request) ([]submodules.Requirement, error) {
	command := "docker"
	err := with(ctx, r, func(s *session) error {
		command = s.set.docker[0]
		if _, err := s.findCompose(ctx); err != nil || !r.HasOption(submodules.OptionSecrets) {
			return err
		}
		return submodules.Mark(s.set.secrets.Check(ctx, r.Recipients), submodules.ErrRequirement)
	})
	return []submodules.Requirement{{Command: command}}, err
}

// Rollout implements submodules.Orchestrator.
func (Orchestrator) Rollout(ctx context.Context, r submodules.Request) error {
	return with(ctx, r, func(s *session) error { return s.rollout(ctx) })
}

// Rollback implements submodules.Orchestrator. To bring a release back is to
// bring it up: what only the failed one had are orphans then.
func (Orchestrator) Rollback(ctx context.Context, r submodules.Request) error {
	return with(ctx, r, func(s *session) error {
		s.back = true
		return s.rollout(ctx)
	})
}

// Stop implements submodules.Orchestrator.
func (Orchestrator) Stop(ctx context.Context, r submodules.Request) error {
	return with(ctx, r, func(s *session) error { return s.stop(ctx) })
}

// Start implements submodules.Orchestrator.
func (Orchestrator) Start(ctx context.Context, r submodules.Request) error {
	return with(ctx, r, func(s *session) error { return s.start(ctx) })
}

// Alive implements submodules.Orchestrator.
func (Orchestrator) Alive(ctx context.Context, r submodules.Request) (ok bool, err error) {
	err = with(ctx, r, func(s *session) error {
		ok, err = s.alive(ctx)
		return err
	})
	return ok, err
}

// Healthy implements submodules.Orchestrator.
func (Orchestrator) Healthy(ctx context.Context, r submodules.Request) (ok bool, err error) {
	err = with(ctx, r, func(s *session) error {
		ok, err = s.healthy(ctx)
		return err
	})
	return ok, err
}

// Restore implements submodules.Orchestrator.
func (Orchestrator) Restore(ctx context.Context, r submodules.Request) error {
	set, err := readSettings(os.Getenv, r.Logf)
	if err != nil {
		return err
	}
	return restoreSecrets(ctx, set, r)
}

// Purge implements submodules.Orchestrator.
func (Orchestrator) Purge(ctx context.Context, r submodules.Request) error {
	return with(ctx, r, func(s *session) error { return s.purge(ctx) })
}

// ExportManifest implements submodules.Orchestrator.
func (Orchestrator) ExportManifest(ctx context.Context, r submodules.Request) error {
	return with(ctx, r, func(s *session) error { return s.exportManifest(ctx) })
}

// directory returns the project directory as Compose will record it: absolute,
// and with its links kept, for they are what stays the same over releases.
func (s *session) directory() (string, error) {
	dir, err := filepath.Abs(s.req.Dir)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(dir)
	if err == nil && !fi.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		return "", fmt.Errorf("manifests %s: %w", dir, err)
	}
	return dir, nil
}
