// Package k8s is the sub-module for Kubernetes. It applies the manifests of a release
// to the cluster of this node, waits until they are healthy, prunes objects that only
// the older release had, and rolls back. It also loads images into the node's
// containerd. It needs no kubectl and no ctr.
//
// It must not know artifacts, Mender or how releases are kept. The content of images
// is the job of submodules/imagestore.
package k8s

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// Name is the sub-module's name, which is the orchestrator's.
const Name = "k8s"

// Orchestrator is the sub-module; it implements submodules.Orchestrator.
type Orchestrator struct {
	// Sandbox makes LOAD permanently give up the rights it does not need: see
	// imagestore.LoadRequest.Confine. The settings can switch it off.
	Sandbox bool

	settings func() (Settings, error)
}

var _ submodules.Orchestrator = Orchestrator{}

// New returns the sub-module. Each call reads the settings, and returns their
// errors.
func New(settings func() (Settings, error)) Orchestrator {
	// Switch off client-go's own logging: errors say what matters.
	klog.SetLogger(klog.Logger{})
	return Orchestrator{settings: settings}
}

// Features implements submodules.Orchestrator.
func (Orchestrator) Features() []string {
	return []string{
		submodules.FeatureStream, submodules.FeatureStage, submodules.FeatureComponents,
		submodules.FeatureDelta, submodules.FeatureShared, submodules.FeatureVcdiff, submodules.FeatureVerify, submodules.FeatureSync,
		submodules.FeatureRepair, submodules.FeatureStorage, submodules.FeatureAnnounced, submodules.FeatureEngine, submodules.FeatureSecrets,
		submodules.FeatureStatus, submodules.FeatureLogs, submodules.FeatureCheck, submodules.FeatureDowntime,
		submodules.FeatureServices, submodules.FeatureOverrides, submodules.FeatureValues,
	}
}

// session is one call; it implements submodules.Session.
type session struct {
	req   submodules.Request
	set   Settings
	c     *cluster.Cluster  // nil for a verb about images only
	store *containerd.Store // see images
	log   func(format string, args ...any)
	watch *downtimeWatch // of a rollout; nil: nothing was changed

	checking bool // for CHECK: the components of the release count as loaded
}

// Open implements submodules.Orchestrator. It reads the settings, and connects to the
// cluster for the verbs that need it: images can be loaded while no API server
// answers.
func (o Orchestrator) Open(_ context.Context, verb string, r submodules.Request) (submodules.Session, error) {
	s := &session{req: r, log: r.Logf}
	if verb == submodules.VerbRestore {
		return s, nil
	}
	var err error
	if s.set, err = o.settings(); err != nil {
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	s.set.Sandbox = s.set.Sandbox && o.Sandbox
	switch verb {
	case submodules.VerbLoad, submodules.VerbSave, submodules.VerbList, submodules.VerbLsComponents,
		submodules.VerbDelete, submodules.VerbVerify, submodules.VerbSync, submodules.VerbStorage:
		return s, nil
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *session) connect() (err error) {
	s.c, err = cluster.Connect(s.set.Kubeconfig, s.req.App, s.set.Connect, s.log)
	if errors.Is(err, cluster.ErrNoKubeconfig) {
		return fmt.Errorf("%w: set K8S_KUBECONFIG in %s", err, ConfigName)
	}
	if err != nil {
		return err
	}
	for _, u := range s.set.Unknown {
		s.log("warning: %s", u)
	}
	return nil
}

// Close implements submodules.Session.
func (s *session) Close() error {
	s.watch.Close()
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// namespace returns the application's namespace.
func (s *session) namespace() string {
	if s.set.Namespace != "" {
		return s.set.Namespace
	}
	return defaultNamespace
}

// pause is the time between two polls.
func (s *session) pause() time.Duration { return 500 * time.Millisecond }

// Rollout implements submodules.Session.
func (s *session) Rollout(ctx context.Context, _ submodules.Request) error {
	return s.rollout(ctx, s.req, true)
}

// Rollback implements submodules.Session. The objects only the failed release had are
// those in the inventory that the release in the request's Dir lacks; FailedDir is
// not needed.
func (s *session) Rollback(ctx context.Context, _ submodules.RollbackRequest) error {
	err := s.rollout(ctx, s.req, false)
	if len(s.req.Overrides) == 0 || !errors.Is(err, submodules.ErrContent) || ctx.Err() != nil {
		return err
	}
	// No other release could run instead.
	s.log("warning: going on without the overrides: %v", err)
	s.req.Overrides = nil
	return s.rollout(ctx, s.req, false)
}

// Downtimes implements submodules.Timekeeper. A service is a workload.
func (s *session) Downtimes(ctx context.Context, failed bool) []submodules.Downtime {
	return s.watch.End(ctx, failed)
}

// Stop implements submodules.Session.
func (s *session) Stop(ctx context.Context, _ submodules.StopRequest) error {
	return s.stop(ctx, s.req.App)
}

// Start implements submodules.Session.
func (s *session) Start(ctx context.Context, _ submodules.Request) error {
	return s.start(ctx, s.req.App, s.req.Dir)
}

// Alive implements submodules.Session.
func (s *session) Alive(ctx context.Context, _ submodules.Request) (bool, error) {
	st, err := s.explained(ctx)
	return st.alive, err
}

// Healthy implements submodules.Session.
func (s *session) Healthy(ctx context.Context, _ submodules.Request) (bool, error) {
	st, err := s.explained(ctx)
	return st.healthy, err
}

// explained inspects the application, and logs why it is not healthy.
func (s *session) explained(ctx context.Context) (state, error) {
	st, err := s.inspect(ctx, s.req.App)
	if err == nil && st.why != "" {
		s.log("%s", st.why)
	}
	return st, err
}

// Purge implements submodules.Session.
func (s *session) Purge(ctx context.Context, r submodules.PurgeRequest) error {
	if err := s.purge(ctx, s.req.App, r.Data, r.First); err != nil {
		return err
	}
	store, err := s.images(ctx)
	if err != nil {
		s.log("warning: the images stay: %v", err)
		return nil
	}
	remove := func() error { return store.Purge(ctx, s.req.App) }
	if s.set.Registry == nil {
		return remove()
	}
	return s.unpush(ctx, store, remove)
}

// Render implements submodules.Renderer. It does not show encrypted objects.
func (s *session) Render(ctx context.Context, _ submodules.Request) ([]byte, error) {
	r, err := s.readRelease(ctx, s.req.App, s.req.Dir, true)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, p := range r.objects {
		fmt.Fprintf(&out, "---\n# %s\n", p.File)
		if p.Sealed {
			fmt.Fprintf(&out, "# %s/%s is encrypted\n", p.Kind, p.Name)
			continue
		}
		text, err := yaml.JSONToYAML(p.JSON)
		if err != nil {
			return nil, p.Errorf("%w", err)
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// ExportManifest implements submodules.Session.
func (s *session) ExportManifest(ctx context.Context, _ submodules.Request) error {
	return s.export(ctx, s.req.App, s.req.Dir)
}

// Reqs implements submodules.Session: it needs no command, but an API server and a
// containerd that answer.
func (s *session) Reqs(ctx context.Context, r submodules.ReqsRequest) ([]submodules.Requirement, error) {
	err := s.c.Retry(ctx, func() error {
		_, err := s.c.Disco.ServerVersion()
		return err
	})
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	if r.Secrets {
		if err := s.set.Secrets.Check(ctx, r.Recipients); err != nil {
			return nil, submodules.Mark(err, submodules.ErrRequirement)
		}
	}
	if _, err := s.images(ctx); err != nil || s.set.Registry == nil {
		return nil, err
	}
	return nil, s.set.Registry.Ping(ctx)
}

// Restore implements submodules.Session: the cluster keeps its Secrets.
func (s *session) Restore(_ context.Context, _ submodules.Request) error { return nil }

// Storage implements submodules.Session.
func (s *session) Storage(ctx context.Context, _ submodules.Request) ([]string, error) {
	store, err := s.images(ctx)
	if err != nil {
		return nil, err
	}
	return store.Storage(ctx)
}

// Engine implements submodules.Session: the version is the API server's.
func (s *session) Engine(ctx context.Context, _ submodules.Request) (submodules.Engine, error) {
	e := submodules.Engine{Name: "kubernetes"}
	err := s.c.Retry(ctx, func() error {
		v, err := s.c.Disco.ServerVersion()
		if err == nil {
			e.Version = v.GitVersion
		}
		return err
	})
	return e, submodules.Mark(err, submodules.ErrRequirement)
}

// errNoURL is the error for content without a reference.
var errNoURL = errors.New("a component needs a url, such as docker.io/library/web:1")

func noURL(url string) error {
	return submodules.Mark(fmt.Errorf("%w, not %q", errNoURL, url), submodules.ErrUsage)
}
