// Package k8s is the sub-module for Kubernetes: it applies the manifests of a
// release to the cluster of this node, waits until they are healthy, prunes
// what the release before had, and goes back; and it brings images into the
// node's containerd. No kubectl and no ctr is needed.
//
// It must not know artifacts, Mender or how releases are kept; images as
// content are submodules/imagestore's.
package k8s

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// Name is the sub-module's name, which is the orchestrator's.
const Name = "k8s"

// Module is the sub-module. It connects to the cluster and to containerd when
// a verb first needs them. Close it when done.
type Module struct {
	// Sandbox makes Load take from this process, for good, what it does not need:
	// see imagestore.LoadRequest.Confine. The settings can switch it off.
	Sandbox bool

	read  func() (Settings, error)
	store *containerd.Store
}

// New returns a sub-module. Each verb reads the settings; that they are wrong
// is its error.
func New(settings func() (Settings, error)) *Module {
	// client-go's own logging: what matters comes back as errors.
	klog.SetLogger(klog.Logger{})
	return &Module{read: settings}
}

var _ submodules.Orchestrator = (*Module)(nil)

// Close ends the connection to containerd.
func (m *Module) Close() error {
	if m.store == nil {
		return nil
	}
	return m.store.Close()
}

// Features implements submodules.Orchestrator.
func (m *Module) Features() []string {
	return []string{
		submodules.FeatureStream, submodules.FeatureStage, submodules.FeatureComponents,
		submodules.FeatureDelta, submodules.FeatureShared, submodules.FeatureVcdiff, submodules.FeatureVerify, submodules.FeatureSync,
		submodules.FeatureRepair, submodules.FeatureStorage, submodules.FeatureAnnounced, submodules.FeatureEngine, submodules.FeatureSecrets,
	}
}

func (m *Module) settings() (Settings, error) {
	s, err := m.read()
	return s, submodules.Mark(err, submodules.ErrRequirement)
}

// session is one verb at work on a cluster.
type session struct {
	m   *Module
	set Settings
	c   *cluster.Cluster
	log func(format string, args ...any)
}

func (m *Module) session(r submodules.Request) (*session, error) {
	set, err := m.settings()
	if err != nil {
		return nil, err
	}
	c, err := cluster.Connect(set.Kubeconfig, r.App, set.Connect, r.Logf)
	if errors.Is(err, cluster.ErrNoKubeconfig) {
		return nil, fmt.Errorf("%w: set K8S_KUBECONFIG in %s", err, ConfigName)
	}
	if err != nil {
		return nil, err
	}
	for _, u := range set.Unknown {
		r.Logf("warning: %s", u)
	}
	return &session{m: m, set: set, c: c, log: r.Logf}, nil
}

// namespace is the application's.
func (s *session) namespace() string {
	if s.set.Namespace != "" {
		return s.set.Namespace
	}
	return defaultNamespace
}

// pause is the time between two looks at something that takes its time.
func (s *session) pause() time.Duration { return 500 * time.Millisecond }

// images is the image store, connected when it is first needed.
func (s *session) images(ctx context.Context) (*containerd.Store, error) { return s.m.images(ctx) }

// Rollout implements submodules.Orchestrator.
func (m *Module) Rollout(ctx context.Context, r submodules.Request) error {
	s, err := m.session(r)
	if err != nil {
		return err
	}
	return s.rollout(ctx, r, true)
}

// Rollback implements submodules.Orchestrator. What only the failed release had
// is what the inventory has and the release in r.Dir has not; r.FailedDir is
// not needed.
func (m *Module) Rollback(ctx context.Context, r submodules.Request) error {
	s, err := m.session(r)
	if err != nil {
		return err
	}
	return s.rollout(ctx, r, false)
}

// Stop implements submodules.Orchestrator.
func (m *Module) Stop(ctx context.Context, r submodules.Request) error {
	s, err := m.session(r)
	if err != nil {
		return err
	}
	return s.stop(ctx, r.App)
}

// Start implements submodules.Orchestrator.
func (m *Module) Start(ctx context.Context, r submodules.Request) error {
	s, err := m.session(r)
	if err != nil {
		return err
	}
	return s.start(ctx, r.App, r.Dir)
}

// Alive implements submodules.Orchestrator.
func (m *Module) Alive(ctx context.Context, r submodules.Request) (bool, error) {
	st, err := m.inspect(ctx, r)
	return st.alive, err
}

// Healthy implements submodules.Orchestrator.
func (m *Module) Healthy(ctx context.Context, r submodules.Request) (bool, error) {
	st, err := m.inspect(ctx, r)
	return st.healthy, err
}

func (m *Module) inspect(ctx context.Context, r submodules.Request) (state, error) {
	s, err := m.session(r)
	if err != nil {
		return state{}, err
	}
	st, err := s.inspect(ctx, r.App)
	if err == nil && st.why != "" {
		r.Logf("%s", st.why)
	}
	return st, err
}

// Purge implements submodules.Orchestrator.
func (m *Module) Purge(ctx context.Context, r submodules.Request) error {
	s, err := m.session(r)
	if err != nil {
		return err
	}
	if err := s.purge(ctx, r.App, r.PurgeData); err != nil {
		return err
	}
	store, err := m.images(ctx)
	if err != nil {
		r.Logf("warning: the images stay: %v", err)
		return nil
	}
	if s.set.Registry == nil {
		return store.Purge(ctx, r.App)
	}
	return m.unpush(ctx, store, s.set.Registry, r, func() error { return store.Purge(ctx, r.App) })
}

// ExportManifest implements submodules.Orchestrator.
func (m *Module) ExportManifest(ctx context.Context, r submodules.Request) error {
	s, err := m.session(r)
	if err != nil {
		return err
	}
	return s.export(ctx, r.App, r.Dir)
}

// Reqs implements submodules.Orchestrator: no command is needed, but an API
// server and a containerd that answer are.
func (m *Module) Reqs(ctx context.Context, r submodules.Request) ([]submodules.Requirement, error) {
	s, err := m.session(r)
	if err != nil {
		return nil, err
	}
	err = s.c.Retry(ctx, func() error {
		_, err := s.c.Disco.ServerVersion()
		return err
	})
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	if r.HasOption(submodules.OptionSecrets) {
		if err := s.set.Secrets.Check(ctx, r.Recipients); err != nil {
			return nil, submodules.Mark(err, submodules.ErrRequirement)
		}
	}
	if _, err := s.images(ctx); err != nil || s.set.Registry == nil {
		return nil, err
	}
	return nil, s.set.Registry.Ping(ctx)
}

// Restore implements submodules.Orchestrator: the cluster keeps its Secrets.
func (m *Module) Restore(context.Context, submodules.Request) error { return nil }

// Storage implements submodules.Orchestrator.
func (m *Module) Storage(ctx context.Context, _ submodules.Request) ([]string, error) {
	store, err := m.images(ctx)
	if err != nil {
		return nil, err
	}
	return store.Storage(ctx)
}

// Engine implements submodules.Orchestrator: the version is the API server's.
func (m *Module) Engine(ctx context.Context, r submodules.Request) (submodules.Engine, error) {
	s, err := m.session(r)
	if err != nil {
		return submodules.Engine{}, err
	}
	e := submodules.Engine{Name: "kubernetes"}
	err = s.c.Retry(ctx, func() error {
		v, err := s.c.Disco.ServerVersion()
		if err == nil {
			e.Version = v.GitVersion
		}
		return err
	})
	return e, submodules.Mark(err, submodules.ErrRequirement)
}

// errNoURL is what is said of content that has no reference.
var errNoURL = errors.New("a component needs a url, such as docker.io/library/web:1")

func noURL(url string) error {
	return submodules.Mark(fmt.Errorf("%w, not %q", errNoURL, url), submodules.ErrUsage)
}
