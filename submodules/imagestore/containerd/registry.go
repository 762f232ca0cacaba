package containerd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/platforms"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Registry is the registry from which the other nodes of a cluster pull images. Each
// application has its own repository in it, with one manifest for each image: the
// manifest that this node's store has.
type Registry struct {
	host   string // and port
	prefix string // of the repositories' paths, ending with / if there is one
	scheme string
	client *http.Client
	auth   docker.Authorizer
}

// repositoryPath matches the names that OCI's distribution specification allows.
var repositoryPath = regexp.MustCompile(`^([a-z0-9]+([._-]+[a-z0-9]+)*/)*$`)

// NewRegistry parses registry://[user:password@]host[:port][/path], which means
// HTTPS except on loopback, or registry+http://… for a registry without TLS. ca is
// a file of certificates that are trusted besides the system's, "" for none. It sends
// nothing yet.
func NewRegistry(target, ca string) (*Registry, error) {
	// Silence the client's own log on standard error: it also returns its errors.
	_ = log.SetLevel(log.ErrorLevel.String())
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("not registry://host[:port][/path]") // the parser's error contains the password
	}
	g := &Registry{host: u.Host, scheme: "https", prefix: strings.Trim(u.Path, "/") + "/"}
	if g.prefix == "/" {
		g.prefix = ""
	}
	switch {
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "" || !repositoryPath.MatchString(g.prefix):
		return nil, errors.New("not registry://host[:port][/path]")
	case u.Scheme == "registry+http":
		g.scheme = "http"
	case u.Scheme != "registry":
		return nil, fmt.Errorf("%s:// is not a registry: write registry://host[:port][/path]", u.Scheme)
	case loopback(u.Hostname()):
		g.scheme = "http"
	}
	password, _ := u.User.Password()
	user := u.User.Username()
	roots, err := trusted(ca)
	if err != nil {
		return nil, err
	}
	g.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: roots},
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 5 * time.Minute, // on a slow disk, hashing a layer takes long
		IdleConnTimeout:       time.Minute,
	}}
	g.auth = docker.NewDockerAuthorizer(docker.WithAuthClient(g.client), docker.WithAuthCreds(func(host string) (string, string, error) {
		if host != g.host {
			return "", "", nil
		}
		return user, password, nil
	}))
	return g, nil
}

// trusted are the system's certificates and those in a file, nil for the
// system's alone.
func trusted(ca string) (*x509.CertPool, error) {
	if ca == "" {
		return nil, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("the registry's certificate authority: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("the registry's certificate authority: %s has no certificate in PEM", ca)
	}
	return pool, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// String is the registry without its password.
func (g *Registry) String() string { return g.host + "/" + g.prefix }

func (g *Registry) repository(app string) string {
	return g.prefix + strings.TrimPrefix(imagestore.OwnRepository(app), imagestore.OwnDomain+"/")
}

func (g *Registry) ref(app string, st *stored) string {
	return g.host + "/" + g.repository(app) + "@" + st.manifest.Digest.String()
}

// hosts tells containerd's client how to reach the registry.
func (g *Registry) hosts() docker.RegistryHosts {
	return docker.ConfigureDefaultRegistries(
		docker.WithClient(g.client), docker.WithAuthorizer(g.auth),
		docker.WithPlainHTTP(func(string) (bool, error) { return g.scheme == "http", nil }),
	)
}

// Ping returns an error unless a registry answers.
func (g *Registry) Ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.scheme+"://"+g.host+"/v2/", nil)
	if err != nil {
		return err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return g.failed("ping", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusUnauthorized {
		return g.failed("ping", errors.New(resp.Status))
	}
	return nil
}

// RegistryRef returns the reference by which any node pulls an application's image
// from the registry. It names the content, by digest. The image need not be in the
// registry yet, but has to be in the store, else the error is submodules.ErrNotFound.
func (s *Store) RegistryRef(ctx context.Context, g *Registry, app string, id imagestore.Identity) (string, error) {
	st, err := s.find(ctx, id)
	if err != nil {
		return "", err
	}
	if st == nil {
		return "", missing(string(id.Config), id)
	}
	return g.ref(app, st), nil
}

// Push copies an application's image from the store to the registry. It does not
// send layers that the registry has.
func (s *Store) Push(ctx context.Context, g *Registry, app string, id imagestore.Identity) error {
	st, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if st == nil {
		return missing(string(id.Config), id)
	}
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: g.hosts()})
	tagged := g.host + "/" + g.repository(app) + ":" + st.config.Hex()
	pusher, err := resolver.Pusher(ctx, tagged+"@"+st.manifest.Digest.String())
	if err != nil {
		return g.failed("push "+tagged, err)
	}
	if err := remotes.PushContent(ctx, pusher, st.manifest, s.content(), nil, platforms.All, nil); err != nil {
		return g.failed("push "+tagged, err)
	}
	return nil
}

// InRegistry reports whether the registry has an application's image. It is false for
// an image that is not in the store.
func (s *Store) InRegistry(ctx context.Context, g *Registry, app string, id imagestore.Identity) (bool, error) {
	st, err := s.find(ctx, id)
	if err != nil || st == nil {
		return false, err
	}
	_, _, err = docker.NewResolver(docker.ResolverOptions{Hosts: g.hosts()}).Resolve(ctx, g.ref(app, st))
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, g.failed("look for "+g.ref(app, st), err)
	}
	return true, nil
}

// RemoveFromRegistry removes an image by the reference that RegistryRef returned. A
// missing image is not an error. If the registry does not allow deletions, the error is
// errors.ErrUnsupported.
func (g *Registry) RemoveFromRegistry(ctx context.Context, ref string) error {
	name, digest, _ := strings.Cut(strings.TrimPrefix(ref, g.host+"/"), "@")
	address := (&url.URL{Scheme: g.scheme, Host: g.host, Path: "/v2/" + name + "/manifests/" + digest}).String()
	ctx = docker.WithScope(ctx, "repository:"+name+":pull,delete")
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, address, nil)
		if err != nil {
			return err
		}
		if err := g.auth.Authorize(ctx, req); err != nil {
			return g.failed("delete "+ref, err)
		}
		resp, err := g.client.Do(req)
		if err != nil {
			return g.failed("delete "+ref, err)
		}
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusUnauthorized && try == 0 && g.auth.AddResponses(ctx, []*http.Response{resp}) == nil:
			continue
		case resp.StatusCode < 300, resp.StatusCode == http.StatusNotFound:
			return nil
		case resp.StatusCode == http.StatusMethodNotAllowed:
			return fmt.Errorf("delete %s: %w", ref, errors.ErrUnsupported)
		}
		return fmt.Errorf("delete %s: the registry says %s", ref, resp.Status)
	}
}

// failed marks an error as one of the registry.
func (g *Registry) failed(what string, err error) error {
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		err = fmt.Errorf("%w; K8S_REGISTRY_CA may name its certificate authority", err)
	}
	return submodules.Mark(fmt.Errorf("registry %s: %s: %w", g.host, what, err), submodules.ErrRequirement)
}
