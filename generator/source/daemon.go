package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
)

// dockerAPI makes the few calls of the Docker Engine API that are needed here.
// It uses DOCKER_HOST (unix:// and tcp://) and, for tcp, DOCKER_TLS_VERIFY with
// DOCKER_CERT_PATH. It does not support ssh:// and docker contexts.
type dockerAPI struct {
	client *http.Client
	base   string
	host   string
}

const defaultDockerHost = "unix:///var/run/docker.sock"

func newDockerAPI() (*dockerAPI, error) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = defaultDockerHost
	}
	scheme, addr, _ := strings.Cut(host, "://")
	t := &http.Transport{DisableCompression: true}
	api := &dockerAPI{client: &http.Client{Transport: t}, host: host}
	switch scheme {
	case "unix":
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", addr)
		}
		api.base = "http://docker"
	case "tcp":
		api.base = "http://" + addr
		if os.Getenv("DOCKER_TLS_VERIFY") != "" {
			config, err := dockerTLS()
			if err != nil {
				return nil, err
			}
			t.TLSClientConfig = config
			api.base = "https://" + addr
		}
	default:
		return nil, &Error{Text: fmt.Sprintf("DOCKER_HOST=%s is not supported", host), Hint: "use a unix:// or tcp:// address"}
	}
	return api, nil
}

func dockerTLS() (*tls.Config, error) {
	dir := os.Getenv("DOCKER_CERT_PATH")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(home, ".docker")
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s/ca.pem holds no certificate", dir)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}, nil
}

// get calls the API; a status other than 200 is an error with the engine's
// message, and NotFound for 404.
func (a *dockerAPI) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	u := a.base + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return nil, &Error{Text: "the Docker daemon at " + a.host + " cannot be reached", Err: err, Hint: "is it running, and may you use it? DOCKER_HOST names another one"}
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var m struct{ Message string }
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if json.Unmarshal(b, &m) != nil || m.Message == "" {
		m.Message = resp.Status
	}
	return nil, &Error{Text: "the Docker daemon says: " + strings.Join(strings.Fields(m.Message), " "), NotFound: resp.StatusCode == http.StatusNotFound}
}

// savesPlatform is the first API version in which /images/get takes a platform.
var savesPlatform = [2]int{1, 48}

// platformQuery makes the query that chooses a platform. Older engines have one
// platform of an image only, and take no query.
func (a *dockerAPI) platformQuery(ctx context.Context, p image.Platform) (url.Values, error) {
	resp, err := a.get(ctx, "/version", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var v struct{ ApiVersion string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&v); err != nil {
		return nil, fmt.Errorf("version of the Docker daemon: %w", err)
	}
	major, minor, _ := strings.Cut(v.ApiVersion, ".")
	ma, _ := strconv.Atoi(major)
	mi, _ := strconv.Atoi(minor)
	if ma < savesPlatform[0] || ma == savesPlatform[0] && mi < savesPlatform[1] || p == (image.Platform{}) {
		return nil, nil
	}
	q, err := json.Marshal(struct {
		OS      string `json:"os"`
		Arch    string `json:"architecture"`
		Variant string `json:"variant,omitempty"`
	}{p.OS, p.Arch, p.Variant})
	if err != nil {
		return nil, err
	}
	return url.Values{"platform": {string(q)}}, nil
}

// fromDaemon saves the image through the engine API into the temporary
// directory. The API has no other way to read an image's content.
func (o *Opener) fromDaemon(ctx context.Context, s Spec) (*Found, error) {
	api, err := newDockerAPI()
	if err != nil {
		return nil, err
	}
	defer api.client.CloseIdleConnections()
	query, err := api.platformQuery(ctx, o.Platform)
	if err != nil {
		return nil, err
	}
	var info struct {
		Os, Architecture, Variant string
		RepoTags                  []string
	}
	resp, err := api.get(ctx, "/images/"+s.Ref+"/json", nil)
	if err != nil {
		return nil, notThere(s, err)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&info)
	resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("the Docker daemon's answer: %w", err)
	}
	have := image.Platform{OS: info.Os, Arch: info.Architecture, Variant: info.Variant}.Normalize()
	if query == nil && o.fit(have) == image.NoFit {
		// fail before the image is copied
		return nil, &image.PlatformError{Want: o.Platform, Have: []image.Platform{have.Or(o.Platform)}}
	}
	resp, err = api.get(ctx, "/images/"+s.Ref+"/get", query)
	var refused *Error
	if errors.As(err, &refused) && query != nil {
		// The engine finds exact platforms only. It may have the image for arm
		// without a variant, which runs on arm/v7.
		resp, err = api.get(ctx, "/images/"+s.Ref+"/get", nil)
	}
	if err != nil {
		return nil, notThere(s, err)
	}
	defer resp.Body.Close()
	path, err := o.keep(metered.Reader(ctx, resp.Body, metered.Sum(func(n int64) { o.tell(s.String(), n, -1) })))
	if err != nil {
		return nil, fmt.Errorf("save %s: %w", s.Ref, err)
	}
	a, err := o.archive(path)
	if err != nil {
		return nil, fmt.Errorf("%s, as the Docker daemon saves it: %w", s.Ref, err)
	}
	img, err := o.choose(a, s.String(), "")
	if err != nil {
		return nil, err
	}
	u := withoutDigest(s.Ref)
	if isID(u) || strings.Contains(u, "@") {
		u = onlyName(info.RepoTags)
	}
	return &Found{Image: img, URL: u}, checkLayers(s.String(), img)
}

func notThere(s Spec, err error) error {
	var e *Error
	if errors.As(err, &e) && e.NotFound {
		return &Error{Text: "the Docker daemon has no " + s.Ref, NotFound: true, Hint: "docker pull it, or name the registry's by " + s.Ref + " alone"}
	}
	return err
}

// inDaemon reports whether the daemon here, if there is one, has the image.
func (o *Opener) inDaemon(ctx context.Context, ref string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	api, err := newDockerAPI()
	if err != nil {
		return false
	}
	defer api.client.CloseIdleConnections()
	resp, err := api.get(ctx, "/images/"+ref+"/json", nil)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}
