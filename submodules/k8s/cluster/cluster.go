// Package cluster talks to a Kubernetes API server: it gets, applies, lists and
// deletes objects of any kind. Its calls wait for an API server that does not
// answer, and repeat requests that may succeed the next time. It must not know
// releases, inventories or what an object means.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// SharedManager owned the fields of every application in earlier versions;
// now each application has a manager of its own.
const SharedManager = "mender-app"

// parallel is the highest number of requests at the same time.
const parallel = 8

// Cluster is a connection to a cluster. Every call waits, with growing delay,
// for an API server that does not answer, as long as the settings or the
// context allow.
type Cluster struct {
	dyn      dynamic.Interface
	Disco    discovery.DiscoveryInterface
	Mapper   *restmapper.DeferredDiscoveryRESTMapper
	host     string
	Manager  string        // owns the fields that are applied; see server-side apply
	patience time.Duration // with an API server that does not answer
	log      func(format string, args ...any)

	mu     sync.Mutex
	down   bool                          // it was logged that the server does not answer
	asked  time.Time                     // when the mapper last asked which resources the API has
	silent map[schema.GroupVersion]error // the groups whose server did not answer then
}

// Connect makes the clients for a call about an application. Without the path of
// a kubeconfig it looks for one. It sends nothing yet. patience is how long calls
// wait for an API server that does not answer.
func Connect(kubeconfig, app string, patience time.Duration, log func(string, ...any)) (*Cluster, error) {
	cfg, err := restConfig(kubeconfig)
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrRequirement)
	}
	cfg.QPS = -1 // bounded by parallel
	cfg.Timeout = 30 * time.Second
	cfg.UserAgent = "mender-app"
	cfg.WarningHandler = rest.NoWarnings{}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, submodules.Mark(fmt.Errorf("kubeconfig: %w", err), submodules.ErrRequirement)
	}
	c := &Cluster{host: cfg.Host, Manager: marks.FieldManager(app), patience: patience, log: log}
	if c.dyn, err = dynamic.NewForConfigAndClient(cfg, hc); err != nil {
		return nil, err
	}
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, err
	}
	c.Disco = dc
	c.Mapper = restmapper.NewDeferredDiscoveryRESTMapper(noting{memory.NewMemCacheClient(dc), c})
	return c, nil
}

// noting remembers the API groups whose server did not answer. The mapper does not
// remember them.
type noting struct {
	discovery.CachedDiscoveryInterface
	c *Cluster
}

func (n noting) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := n.CachedDiscoveryInterface.ServerGroupsAndResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.asked, n.c.silent = time.Now(), nil
	if errors.As(err, &failed) {
		n.c.silent = failed.Groups
	}
	return groups, lists, err
}

// ErrNoKubeconfig: no kubeconfig was named, and there is none in the usual places.
var ErrNoKubeconfig = errors.New("no kubeconfig")

func restConfig(path string) (*rest.Config, error) {
	if path == "" {
		for _, p := range kubeconfigPlaces() {
			if _, err := os.Stat(p); err == nil {
				path = p
				break
			}
		}
	}
	if path == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		}
		return nil, fmt.Errorf("%w; looked at %s", ErrNoKubeconfig, strings.Join(kubeconfigPlaces(), ", "))
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// transient reports whether trying again may help: the API server cannot be
// reached, is starting, or has lost its etcd.
func transient(err error) bool {
	var ne net.Error
	var ue *url.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return false
	case apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err):
		return true
	case apierrors.IsInternalError(err):
		return strings.Contains(err.Error(), "etcd") || strings.Contains(err.Error(), "failed calling webhook")
	case apierrors.IsForbidden(err):
		// An admission plugin of a server that has just started (apiserver,
		// admission.Handler).
		return strings.Contains(err.Error(), "not yet ready to handle request")
	case errors.Is(err, errSilent):
		return true
	case errors.As(err, &ue), errors.As(err, &ne), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		// A wrong certificate is still wrong the next time.
		return !strings.Contains(err.Error(), "x509:")
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && strings.Contains(err.Error(), "the server was unable to return a response")
}

// Retry runs f until it succeeds or fails for good.
func (c *Cluster) Retry(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(c.patience)
	for delay := 250 * time.Millisecond; ; delay = min(delay*2, 10*time.Second) {
		err := f()
		if !transient(err) {
			c.mu.Lock()
			if c.down && err == nil {
				c.down = false
				c.log("the API server at %s answers again", c.host)
			}
			c.mu.Unlock()
			return err
		}
		c.mu.Lock()
		if !c.down {
			c.down = true
			c.log("the API server at %s does not answer, trying on: %v", c.host, err)
		}
		c.mu.Unlock()
		if time.Now().Add(delay).After(deadline) {
			return submodules.Mark(fmt.Errorf("the API server at %s does not answer; is the cluster running? %w", c.host, err), submodules.ErrRequirement)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server at %s does not answer: %w", c.host, errors.Join(context.Cause(ctx), err))
		case <-time.After(delay):
		}
	}
}

// Each runs f for 0 to n-1, several at once, and returns the error of the lowest
// number. It begins no more calls after an error.
func Each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, n)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(parallel, n) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				if errs[i] = ctx.Err(); errs[i] == nil {
					if errs[i] = f(ctx, i); errs[i] != nil {
						cancel()
					}
				}
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	var first error
	for _, err := range errs {
		if err != nil && (first == nil || errors.Is(first, context.Canceled) && !errors.Is(err, context.Canceled)) {
			first = err
		}
	}
	return first
}

// ID names an object in a cluster, whatever the version of its API.
type ID struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (i ID) String() string {
	if i.Namespace != "" {
		return i.Kind + "/" + i.Name + " in " + i.Namespace
	}
	return i.Kind + "/" + i.Name
}

// errSilent says that the server of an API group does not answer.
var errSilent = errors.New("its API server does not answer")

// renewal is the maximum age at which the cached list of resources is trusted about a
// missing kind: definitions come and go during a call.
const renewal = time.Second

// Mapping finds the resource of a kind; version "" takes the preferred one. The
// error for a missing kind is a meta.NoMatchError.
func (c *Cluster) Mapping(ctx context.Context, group, kind, version string) (*meta.RESTMapping, error) {
	gk := schema.GroupKind{Group: group, Kind: kind}
	var versions []string
	if version != "" {
		versions = []string{version}
	}
	var m *meta.RESTMapping
	err := c.Retry(ctx, func() (err error) {
		m, err = c.Mapper.RESTMapping(gk, versions...)
		if meta.IsNoMatchError(err) && c.stale() {
			c.Mapper.Reset()
			m, err = c.Mapper.RESTMapping(gk, versions...)
		}
		if meta.IsNoMatchError(err) {
			if silent := c.silentOn(group); silent != nil {
				c.Mapper.Reset()
				return silent
			}
		}
		return err
	})
	return m, err
}

// stale reports whether the cached list of resources is older than renewal.
func (c *Cluster) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) > renewal
}

// silentOn returns an error if the server of an API group did not answer.
func (c *Cluster) silentOn(group string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gv, err := range c.silent {
		// A group that is not found was removed while the list was read.
		if gv.Group == group && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w: %w", gv, errSilent, err)
		}
	}
	return nil
}

func (c *Cluster) resource(m *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dyn.Resource(m.Resource).Namespace(namespace)
	}
	return c.dyn.Resource(m.Resource)
}

// kubeconfigPlaces are the paths of the administrator's kubeconfig in k3s, k0s,
// microk8s and kubeadm, and of a user's own.
func kubeconfigPlaces() []string {
	places := []string{
		"/etc/rancher/k3s/k3s.yaml",
		"/var/lib/k0s/pki/admin.conf",
		"/var/snap/microk8s/current/credentials/client.config",
		"/etc/kubernetes/admin.conf",
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, ".kube", "config"))
	}
	return places
}
