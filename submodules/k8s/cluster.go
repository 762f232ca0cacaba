package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// sharedManager owned the fields of every application in earlier versions;
// now each application has a manager of its own.
const sharedManager = "mender-app"

// parallel bounds the requests under way at once.
const parallel = 8

// cluster is a connection to a cluster. Every call waits, with growing delay,
// for an API server that does not answer, as long as the settings or the
// context allow.
type cluster struct {
	dyn     dynamic.Interface
	disco   discovery.DiscoveryInterface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	host    string
	manager string // owns the fields that are applied; see server-side apply
	connect time.Duration
	log     func(format string, args ...any)

	mu     sync.Mutex
	down   bool                          // said so already
	asked  time.Time                     // when the mapper last asked what the API serves
	silent map[schema.GroupVersion]error // what it could not be told of then
}

// connect finds a kubeconfig and makes the clients for a call about an
// application. Nothing is sent yet.
func connect(s Settings, app string, log func(string, ...any)) (*cluster, error) {
	cfg, err := restConfig(s.Kubeconfig)
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
	c := &cluster{host: cfg.Host, manager: marks.FieldManager(app), connect: s.Connect, log: log}
	if c.dyn, err = dynamic.NewForConfigAndClient(cfg, hc); err != nil {
		return nil, err
	}
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, err
	}
	c.disco = dc
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(noting{memory.NewMemCacheClient(dc), c})
	return c, nil
}

// noting remembers what the API server could not say of what it serves, which
// the mapper does not.
type noting struct {
	discovery.CachedDiscoveryInterface
	c *cluster
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
		return nil, fmt.Errorf("no kubeconfig: set K8S_KUBECONFIG in %s; looked at %s", ConfigName, strings.Join(kubeconfigPlaces(), ", "))
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// transient reports whether trying again may help: the API server is not
// there, is starting, or has lost its etcd.
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
		// A certificate that is wrong stays so.
		return !strings.Contains(err.Error(), "x509:")
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && strings.Contains(err.Error(), "the server was unable to return a response")
}

// retry runs f until it succeeds or fails for good.
func (c *cluster) retry(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(c.connect)
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

// each runs f for 0 to n-1, some at once, and returns the first error in order.
// After one, no more are begun.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
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

// id names an object in a cluster, whatever the version of its API.
type id struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (i id) String() string {
	if i.Namespace != "" {
		return i.Kind + "/" + i.Name + " in " + i.Namespace
	}
	return i.Kind + "/" + i.Name
}

// errSilent is of a part of the API whose server does not answer.
var errSilent = errors.New("its API server does not answer")

// renewal is how old what is known of the API may be before a kind is believed
// not to be there: definitions come and go while a call is under way.
const renewal = time.Second

// mapping finds the resource of a kind; version "" takes the preferred one. A
// kind that is not there is a meta.NoMatchError.
func (c *cluster) mapping(ctx context.Context, group, kind, version string) (*meta.RESTMapping, error) {
	gk := schema.GroupKind{Group: group, Kind: kind}
	var versions []string
	if version != "" {
		versions = []string{version}
	}
	var m *meta.RESTMapping
	err := c.retry(ctx, func() (err error) {
		m, err = c.mapper.RESTMapping(gk, versions...)
		if meta.IsNoMatchError(err) && c.stale() {
			c.mapper.Reset()
			m, err = c.mapper.RESTMapping(gk, versions...)
		}
		if meta.IsNoMatchError(err) {
			if silent := c.silentOn(group); silent != nil {
				c.mapper.Reset()
				return silent
			}
		}
		return err
	})
	return m, err
}

// stale reports whether what is known of the API is older than it may be.
func (c *cluster) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) > renewal
}

// silentOn is an error if the API server could not say what it serves of a group.
func (c *cluster) silentOn(group string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gv, err := range c.silent {
		// One that is not found is gone, which was found out half-way.
		if gv.Group == group && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w: %w", gv, errSilent, err)
		}
	}
	return nil
}

func (c *cluster) resource(m *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dyn.Resource(m.Resource).Namespace(namespace)
	}
	return c.dyn.Resource(m.Resource)
}

// get returns the object, nil if it, or its kind, is not there.
func (c *cluster) get(ctx context.Context, i id) (*unstructured.Unstructured, error) {
	m, err := c.mapping(ctx, i.Group, i.Kind, "")
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i, err)
	}
	return c.getMapped(ctx, m, i)
}

func (c *cluster) getMapped(ctx context.Context, m *meta.RESTMapping, i id) (*unstructured.Unstructured, error) {
	var o *unstructured.Unstructured
	err := c.retry(ctx, func() (err error) {
		o, err = c.resource(m, i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", i, err)
	}
	return o, nil
}

// apply sends one object by server-side apply. The server refuses fields that
// the API does not know.
func (c *cluster) apply(ctx context.Context, m *meta.RESTMapping, i id, data []byte) (*unstructured.Unstructured, error) {
	return c.applyAs(ctx, m, i, data, metav1.PatchOptions{FieldManager: c.manager})
}

// tryApply returns what apply would make of an object, and changes nothing.
func (c *cluster) tryApply(ctx context.Context, m *meta.RESTMapping, i id, data []byte, manager string) (*unstructured.Unstructured, error) {
	return c.applyAs(ctx, m, i, data, metav1.PatchOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
}

func (c *cluster) applyAs(ctx context.Context, m *meta.RESTMapping, i id, data []byte, opts metav1.PatchOptions) (*unstructured.Unstructured, error) {
	force := true
	opts.Force, opts.FieldValidation = &force, metav1.FieldValidationStrict
	var o *unstructured.Unstructured
	err := c.settle(ctx, func() (err error) {
		o, err = c.resource(m, i.Namespace).Patch(ctx, i.Name, types.ApplyPatchType, data, opts)
		return err
	})
	return o, err
}

// settle is retry for what is written: an object that others change all the
// time can be missed by the API server's own tries, and a new one be made by
// someone else.
func (c *cluster) settle(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := c.retry(ctx, f)
		if try == 5 || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if serr := sleep(ctx, time.Duration(try)*50*time.Millisecond); serr != nil {
			return errors.Join(serr, err)
		}
	}
}

// patch sends a JSON merge patch. An object that is not there is no error.
func (c *cluster) patch(ctx context.Context, i id, patch map[string]any) error {
	m, err := c.mapping(ctx, i.Group, i.Kind, "")
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", i, err)
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = c.settle(ctx, func() error {
		_, err := c.resource(m, i.Namespace).Patch(ctx, i.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: c.manager})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch %s: %w", i, err)
	}
	return nil
}

// remove deletes an object, a workload's pods before it, if it still is the one
// with the uid ("" is any). It returns before the object is gone. One that is not
// there is no error.
func (c *cluster) remove(ctx context.Context, i id, uid types.UID) error {
	m, err := c.mapping(ctx, i.Group, i.Kind, "")
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", i, err)
	}
	// In the foreground the object is there as long as what it owns. The
	// garbage collector does that one by one: not for what owns nothing.
	how := metav1.DeletePropagationForeground
	if stateless[i.Kind] {
		how = metav1.DeletePropagationBackground
	}
	opts := metav1.DeleteOptions{PropagationPolicy: &how}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err = c.retry(ctx, func() error { return c.resource(m, i.Namespace).Delete(ctx, i.Name, opts) })
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", i, err)
	}
	return nil
}

// list returns the objects of a kind with the labels, in a namespace or ("")
// in all.
func (c *cluster) list(ctx context.Context, group, kind, namespace, selector string) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	err := c.eachOf(ctx, group, kind, namespace, selector, func(o *unstructured.Unstructured) { items = append(items, *o) })
	return items, err
}

// eachOf calls f for the objects that list returns, without keeping them.
func (c *cluster) eachOf(ctx context.Context, group, kind, namespace, selector string, f func(*unstructured.Unstructured)) error {
	m, err := c.mapping(ctx, group, kind, "")
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return c.pages(ctx, kind, c.resource(m, namespace), selector, f)
}

// listResource returns the objects of a resource in a namespace. One that the
// API does not serve is not found.
func (c *cluster) listResource(ctx context.Context, r schema.GroupVersionResource, namespace string) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	err := c.pages(ctx, r.Resource, c.dyn.Resource(r).Namespace(namespace), "", func(o *unstructured.Unstructured) { items = append(items, *o) })
	return items, err
}

// pages calls f for each object that from lists, one page in memory at a time.
func (c *cluster) pages(ctx context.Context, what string, from dynamic.ResourceInterface, selector string, f func(*unstructured.Unstructured)) error {
	opts := metav1.ListOptions{LabelSelector: selector, Limit: 200}
	for {
		var l *unstructured.UnstructuredList
		err := c.retry(ctx, func() (err error) {
			l, err = from.List(ctx, opts)
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		for i := range l.Items {
			f(&l.Items[i])
		}
		if opts.Continue = l.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// podLog returns the last lines of a container's log; previous is the log of
// the one before it.
func (c *cluster) podLog(ctx context.Context, namespace, pod, container string, lines int64, previous bool) ([]string, error) {
	req := c.disco.RESTClient().Get().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "log").
		Param("container", container).Param("tailLines", fmt.Sprint(lines)).Param("limitBytes", "8192")
	if previous {
		req = req.Param("previous", "true")
	}
	data, err := req.DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n"), nil
}
