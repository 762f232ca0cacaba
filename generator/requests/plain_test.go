package requests_test

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/source"
)

// network is all the network that there is beside this machine: a proxy, which sees each
// request over plain HTTP as anybody on the way would, and behind it one server with TLS,
// example.com. net/http reads its environment once in a process.
var network struct {
	sync.Mutex
	plain []string     // requests over plain HTTP, whole
	tls   http.Handler // example.com
	noTLS http.Handler // all hosts, over plain HTTP
}

func TestMain(m *testing.M) {
	example := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { network.tls.ServeHTTP(w, r) }))
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			tunnel(w, r, example.Listener.Addr().String())
			return
		}
		whole, err := httputil.DumpRequest(r, true)
		network.Lock()
		network.plain = append(network.plain, fmt.Sprintf("%s\n%s %v", r.RequestURI, whole, err))
		network.Unlock()
		network.noTLS.ServeHTTP(w, r)
	}))
	network.tls, network.noTLS = http.NotFoundHandler(), http.NotFoundHandler()
	example.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not like the certificate
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	cert := filepath.Join(dir, "cert.pem")
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: example.Certificate().Raw}), 0o600); err != nil {
		panic(err)
	}
	for k, v := range map[string]string{"HTTP_PROXY": proxy.URL, "HTTPS_PROXY": proxy.URL, "http_proxy": proxy.URL, "https_proxy": proxy.URL, "NO_PROXY": "", "no_proxy": "", "SSL_CERT_FILE": cert} {
		if err := os.Setenv(k, v); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func tunnel(w http.ResponseWriter, r *http.Request, to string) {
	if r.Host != "example.com:443" {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	go func() { _, _ = io.Copy(server, client); server.Close() }()
	_, _ = io.Copy(client, server)
}

// secrets are those of the test, as they are and as a server gets them.
func secrets() []string {
	return []string{"canary", base64.StdEncoding.EncodeToString([]byte("me:canary"))[4:], "for-example.com"}
}

// TestNoLoginInPlain: whatever a registry, a token service, a web server or a bucket answers,
// and wherever it is, no client of the build host sends a login, or a token that it got for
// it, over plain HTTP. A registry without TLS is asked only if it is on this machine or the
// configuration says so.
func TestNoLoginInPlain(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	config := filepath.Join(home, "docker")
	t.Setenv("DOCKER_CONFIG", config)
	t.Setenv(places.HeaderVariable, "JOB-TOKEN: canary")
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "canary", "AWS_SESSION_TOKEN": "canary-2", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "https://example.com", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(k, v)
	}
	hosts := []string{"example.com", "example.com:443", "192.168.7.7:5000", "192.168.7.7", "10.1.2.3:80", "172.16.9.9", "registry.local", "registry.local:5000", "[fd00::7]:5000", "169.254.1.1", "registry.example"}
	var auths []string
	for _, h := range hosts {
		auths = append(auths, fmt.Sprintf(`%q: {"auth": %q}`, h, base64.StdEncoding.EncodeToString([]byte("me:canary"))))
	}
	require.NoError(t, os.MkdirAll(config, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"auths": {`+strings.Join(auths, ", ")+`}}`), 0o600))

	release := filepath.Join(t.TempDir(), "shop-1.mender")
	require.NoError(t, os.WriteFile(release, []byte("a release"), 0o600))
	// all asks a registry or a server for everything that app-gen asks one for.
	all := func(t *testing.T, host string, kinds ...string) {
		spec, err := source.Parse(host + "/shop/web:1")
		require.NoError(t, err)
		loaded, err := source.LoadConfig()
		require.NoError(t, err)
		o := source.Opener{TempDir: t.TempDir(), Platform: image.Platform{OS: "linux", Arch: "amd64"}, Config: loaded}
		_, err = o.Open(t.Context(), spec, "")
		t.Log(err)
		for _, text := range append(kinds, "oci:"+host+"/shop/releases") {
			p, err := places.Open(text)
			require.NoError(t, err)
			_, err = p.List(t.Context())
			t.Log(text, err)
			body, err := p.Open(t.Context(), "shop-1.mender")
			if err == nil {
				_, _ = io.Copy(io.Discard, body)
				body.Close()
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				continue // its server is not asked for more
			}
			_, err = places.Put(t.Context(), p, "shop-1.mender", release, func(int64) {})
			t.Log(text, err)
		}
		if len(kinds) == 0 {
			return
		}
		s, err := places.OpenMenderServer("https://"+host, "canary")
		require.NoError(t, err)
		_, err = s.Upload(t.Context(), "shop-1", release)
		t.Log(err)
	}
	seen := func() []string {
		network.Lock()
		defer network.Unlock()
		list := network.plain
		network.plain = nil
		return list
	}

	t.Run("redirects without end", func(t *testing.T) {
		var asked atomic.Int32
		network.tls = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				return
			}
			asked.Add(1)
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		})
		all(t, "example.com", "https://me:canary@example.com/r?token=canary", "s3://builds/shop")
		require.Less(t, asked.Load(), int32(200))
		require.Empty(t, seen())
	})

	t.Run("a host without TLS", func(t *testing.T) {
		network.noTLS = challenge(`Basic realm="x"`, nil)
		for _, host := range hosts[2:] {
			all(t, host)
		}
		require.Empty(t, seen(), "asked over plain HTTP")
		d, err := places.OpenContents("oci:192.168.7.7:5000/shop/releases")
		require.NoError(t, err)
		require.Equal(t, "https://192.168.7.7:5000/v2/shop/releases/blobs", d.Source(), "what devices are told")
	})

	t.Run("one that the configuration calls insecure", func(t *testing.T) {
		conf := filepath.Join(home, ".config/containers")
		require.NoError(t, os.MkdirAll(conf, 0o700))
		path := filepath.Join(conf, "registries.conf")
		require.NoError(t, os.WriteFile(path, []byte("[[registry]]\nlocation = \"registry.example\"\ninsecure = true\n"), 0o600))
		defer os.Remove(path)
		network.noTLS = challenge(`Basic realm="x"`, nil)
		p, err := places.Open("oci:registry.example/shop/releases")
		require.NoError(t, err)
		_, err = p.List(t.Context())
		require.Error(t, err)
		asked := seen()
		require.NotEmpty(t, asked)
		require.Contains(t, asked[len(asked)-1], secrets()[1], "the proxy sees logins")
	})

	registry := gentest.Memory()
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": "1"})
	for name, tls := range map[string]http.Handler{
		"basic":                          challenge(`Basic realm="x"`, registry),
		"tokens":                         challenge(`Bearer realm="https://example.com/token",service="x"`, registry),
		"tokens in plain":                challenge(`Bearer realm="http://example.com/token",service="x"`, registry),
		"tokens in plain, port of TLS":   challenge(`Bearer realm="http://example.com:443/token",service="x"`, registry),
		"tokens in plain elsewhere":      challenge(`Bearer realm="http://tokens.local/token",service="x"`, registry),
		"tokens are redirected":          challenge(`Bearer realm="https://example.com/token?to=http://example.com/token",service="x"`, registry),
		"tokens are redirected, TLS":     challenge(`Bearer realm="https://example.com/token?to=http://example.com:443/token",service="x"`, registry),
		"all is redirected":              redirect("http://example.com", nil),
		"all is redirected, port of TLS": redirect("http://example.com:443", nil),
		"all is redirected elsewhere":    redirect("http://192.168.7.7:5000", nil),
		"redirected after the login":     challenge(`Basic realm="x"`, redirect("http://example.com", registry)),
		"redirected after a token":       challenge(`Bearer realm="https://example.com/token",service="x"`, redirect("http://example.com:443", registry)),
		"uploads are elsewhere":          challenge(`Basic realm="x"`, location("http://example.com", registry)),
		"uploads are elsewhere, TLS":     challenge(`Bearer realm="https://example.com/token",service="x"`, location("http://example.com:443", registry)),
	} {
		t.Run(name, func(t *testing.T) {
			network.tls = registry
			gentest.Push(t, "example.com/shop/web:1", img, "", "")
			require.Empty(t, seen())
			network.tls, network.noTLS = tls, challenge(`Basic realm="x"`, registry)
			all(t, "example.com", "https://me:canary@example.com/r?token=canary", "s3://builds/shop")
			for _, r := range seen() {
				for _, s := range secrets() {
					require.NotContains(t, r, s)
				}
				require.NotContains(t, r, "Authorization")
			}
		})
	}
}

// challenge asks for a login, and then passes on. At /token it gives a token to who has a
// login, or redirects as the query says.
func challenge(how string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			if to := r.URL.Query().Get("to"); to != "" {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return
			}
			fmt.Fprintf(w, `{"token": "for-%s"}`, "example.com")
			return
		}
		if r.Header.Get("Authorization") == "" || next == nil {
			w.Header().Set("WWW-Authenticate", how)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// redirect sends everything to another server; with a registry, what is below /v2/NAME alone.
func redirect(to string, registry http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if registry != nil && r.URL.Path == "/v2/" {
			registry.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	})
}

// location puts uploads onto another server.
func location(to string, registry http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		registry.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		if l := rec.Header().Get("Location"); l != "" {
			w.Header().Set("Location", to+l)
		}
		w.WriteHeader(rec.Code)
		_, _ = io.Copy(w, bytes.NewReader(rec.Body.Bytes()))
	})
}
