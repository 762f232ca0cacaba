// Package compose runs applications with Docker Compose: it is the sub-module
// docker-compose.
//
// Compose's own command interprets Compose files. This package checks them before,
// brings the project up, and watches the engine until the release is healthy. Images
// are the job of imagestore/docker. The package must not know artifacts, the
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
	// Sandbox makes LOAD take from this process, for good, what it does not need:
	// see imagestore.LoadRequest.Confine. The configuration can switch it off.
	Sandbox bool
}

var (
	_ submodules.Orchestrator  = Orchestrator{}
	_ submodules.Reporter      = (*session)(nil)
	_ submodules.Logger        = (*session)(nil)
	_ submodules.Checker       = (*session)(nil)
	_ submodules.Timekeeper    = (*session)(nil)
	_ submodules.Renderer      = (*session)(nil)
	_ submodules.VolumeLister  = (*session)(nil)
	_ submodules.CommandRunner = (*session)(nil)
)

// Features implements submodules.Orchestrator.
func (Orchestrator) Features() []string {
	return []string{
		submodules.FeatureStream, submodules.FeatureStage, submodules.FeatureComponents,
		submodules.FeatureDelta, submodules.FeatureShared, submodules.FeatureVcdiff, submodules.FeatureVerify, submodules.FeatureSync,
		submodules.FeatureRepair, submodules.FeatureStorage, submodules.FeatureAnnounced, submodules.FeatureEngine, submodules.FeatureSecrets, submodules.FeatureStatus,
		submodules.FeatureLogs, submodules.FeatureCheck, submodules.FeatureServices, submodules.FeatureDowntime, submodules.FeatureCPUSet, submodules.FeatureOverrides, submodules.FeatureValues, submodules.FeatureData, submodules.FeatureRun,
	}
}

// session is one call; it implements submodules.Session.
type session struct {
	req submodules.Request
	set settings
	// back is true when going back to a release that was accepted once: the operator
	// may have forbidden since then what it has.
	back bool
	// mustStart is true when the application should run again as before: then the
	// engine may be restarted.
	mustStart bool
	engine    *docker.Engine // nil in RESTORE, which runs before the engine is up
	// times measures a rollout of services; nil before it.
	times    *downtimeWatch
	services model
}

// Open implements submodules.Orchestrator. It reads the settings and finds the
// engine. REQS finds it itself, because it has a reply where none answers.
func (o Orchestrator) Open(ctx context.Context, verb string, r submodules.Request) (submodules.Session, error) {
	set, err := readSettings(os.Getenv, r.Logf)
	if err != nil {
		return nil, err
	}
	set.sandbox = set.sandbox && o.Sandbox
	s := &session{req: r, set: set}
	if verb == submodules.VerbReqs || verb == submodules.VerbRestore {
		return s, nil
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *session) connect(ctx context.Context) error {
	host, err := docker.Host(s.set.docker, os.Getenv)
	if err != nil {
		return submodules.Mark(err, submodules.ErrRequirement)
	}
	s.engine, err = docker.Open(ctx, host, s.req.Log)
	return err
}

// Close implements submodules.Session.
func (s *session) Close() error {
	var err error
	if s.req.TempDir != "" { // what was written for Compose, which may have passwords
		for _, name := range []string{"mender-app.compose.json", "mender-app.env", "layers"} {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.req.TempDir, name)))
		}
	}
	if s.engine != nil {
		err = errors.Join(err, s.engine.Close())
	}
	return err
}

// Reqs implements submodules.Session. It also makes sure that the engine
// answers and that a Compose is there which will do: an update that would fail
// for the want of them is refused before anything is loaded.
func (s *session) Reqs(ctx context.Context, r submodules.ReqsRequest) ([]submodules.Requirement, error) {
	needed := []submodules.Requirement{{Command: s.set.docker[0]}}
	if err := s.connect(ctx); err != nil {
		return needed, err
	}
	if err := s.checkCompose(ctx); err != nil || !r.Secrets {
		return needed, err
	}
	return needed, submodules.Mark(s.set.secrets.Check(ctx, r.Recipients), submodules.ErrRequirement)
}

// Rollback implements submodules.Session. To bring a release back is to bring it
// up: what only the failed one had are orphans then.
func (s *session) Rollback(ctx context.Context, _ submodules.RollbackRequest) error {
	s.back, s.mustStart = true, true
	return s.orGone(ctx, s.rollout(ctx))
}

// directory returns the project directory as Compose will record it: absolute, with
// its links kept, because the link's path stays the same over releases.
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
