package faults

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// origin is the web server of a release at the far end of a bad line. It cuts one answer of
// four in the middle, once for each part of a file.
type origin struct {
	dir string
	mu  sync.Mutex
	// sent is how many bytes of each file left the server, whole how often each part of a
	// file was sent to its end, by name and range.
	sent     map[string]int64
	whole    map[string]int
	cut      map[string]bool
	requests int
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := filepath.Base(r.URL.Path)
	part := name + " " + r.Header.Get("Range")
	o.mu.Lock()
	o.requests++
	counted := &counter{ResponseWriter: w}
	if o.requests%4 == 0 && !o.cut[part] {
		o.cut[part] = true
		counted.limit = siteSlice / 4
	}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sent[name] += counted.sent
		switch {
		case counted.limit == 0:
			o.whole[part]++
		case counted.sent < counted.limit: // it was too short to be cut
			delete(o.cut, part)
			o.whole[part]++
		}
	}()
	http.ServeFile(counted, r, filepath.Join(o.dir, name))
}

// counter counts the bytes of an answer. With a limit the connection is cut after them.
type counter struct {
	http.ResponseWriter
	sent, limit int64
}

func (c *counter) Write(p []byte) (int, error) {
	if c.limit == 0 || c.sent+int64(len(p)) < c.limit {
		n, err := c.ResponseWriter.Write(p)
		c.sent += int64(n)
		return n, err
	}
	n, _ := c.ResponseWriter.Write(p[:c.limit-c.sent])
	c.sent += int64(n)
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// siteSlice is the part of a file that the proxy fetches at once.
const siteSlice = 16 << 10

// siteProxy is the configuration of docs/FLEET.md, for an origin and a size of its slices.
func siteProxy(t *testing.T, origin string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(bed.Repository(), "docs/FLEET.md"))
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(doc), "```nginx\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "```")
	for _, change := range [][2]string{
		{"downloads.example:80", origin},
		{"slice 256k;", fmt.Sprintf("slice %d;", siteSlice)},
		{"listen 80;", "listen 80; access_log /tmp/asked asked;"},
	} {
		require.Contains(t, text, change[0])
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return "user root; pid /run/nginx.pid; error_log /tmp/nginx.log; events {}\n" +
		"http { access_log off; log_format asked '$remote_addr $uri $status $http_range $body_bytes_sent';\n" + text + "}\n"
}

// TestSiteBehindABadLine: the devices of a site have a line of 1 Mbit/s together, which
// loses one packet of twenty and drops connections. With Debian's nginx as the proxy of the
// site, each file crosses the line once, whatever the number of devices; what a connection
// lost is fetched from where it ended, and each device has the release at the end.
func TestSiteBehindABadLine(t *testing.T) {
	const devices, bases = 20, 3
	t.Parallel()
	bed.Require(t, "nginx", "tc", "iptables")
	far, site := bed.StartWithoutEngine(t), bed.StartWithoutEngine(t)
	require.NoError(t, bed.Cable(far, "line", "10.8.0.1/24", site, "line", "10.8.0.2/24"))
	for _, d := range []*bed.Device{far, site} {
		require.NoError(t, d.SlowLine("line", "1mbit", 0.05))
	}
	site.MustRun(t, "bash", "-ec", "ip link add site type bridge; ip link set site up; ip address add 10.9.0.1/24 dev site")

	// Releases of a service with data of which each release changes a part.
	programs, err := bed.Programs()
	require.NoError(t, err)
	key := filepath.Join(t.TempDir(), "key.pem")
	signer := e2e.ECDSAKey(t)
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	require.NoError(t, err)
	e2e.WritePEM(t, key, "PRIVATE KEY", private)
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	require.NoError(t, err)
	releases, store := far.Share("releases"), far.Share("content")
	require.NoError(t, os.MkdirAll(releases, 0o755))
	web := e2e.Web(t, "1", "")
	web.Health = nil // a check costs processor time, and there are many devices
	plain := web.Layers
	data := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	inventory := "version\n"
	for n := 1; n <= bases+1; n++ {
		_, _ = rand.NewChaCha8([32]byte{2, byte(n)}).Read(data[n<<18:][:80<<10])
		web.Ref = fmt.Sprintf("shop/web:%d", n)
		web.Layers = append(plain[:len(plain):len(plain)], []bed.File{{Name: "srv/data", Data: data}})
		name := fmt.Sprintf("shop-%d", n)
		file := e2e.Generate(t, far, "shop", name, fmt.Sprint(n), e2e.EditionCompose(n), e2e.Archive(t, web), "--key", key)
		require.NoError(t, os.Rename(file, filepath.Join(releases, name+".mender")))
		if n <= bases {
			inventory += name + "\n"
		}
	}
	plan, list := filepath.Join(t.TempDir(), "plan.json"), filepath.Join(t.TempDir(), "devices.csv")
	require.NoError(t, os.WriteFile(list, []byte(inventory), 0o600))
	next := fmt.Sprint("shop-", bases+1)
	for _, args := range [][]string{
		{"plan", "--inventory", list, "--releases", releases, "-n", next, "-o", plan},
		{"run", plan, store, "--releases", releases},
		{"publish", plan, store, "--source", "http://10.8.0.1/content", "--key", key, "-o", filepath.Join(store, next+".mender")},
	} {
		text, err := exec.Command(filepath.Join(programs, "app-gen"), append([]string{"fleet"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", text)
	}

	from := &origin{dir: store, sent: map[string]int64{}, whole: map[string]int{}, cut: map[string]bool{}}
	l, err := far.Listen("10.8.0.1:80")
	require.NoError(t, err)
	server := &http.Server{Handler: from}
	go server.Serve(l) //nolint:errcheck // it ends with the test
	defer server.Close()
	conf := site.Share("nginx.conf")
	require.NoError(t, os.WriteFile(conf, []byte(siteProxy(t, "10.8.0.1:80")), 0o644))
	var trouble bytes.Buffer
	proxy := site.Command(t.Context(), "nginx", "-c", conf, "-g", "daemon off;")
	proxy.Stderr = &trouble
	require.NoError(t, proxy.Start())
	defer proxy.Process.Kill()
	bed.Eventually(t, time.Minute, "the proxy answers", func() bool {
		r, err := site.Run("bash", "-c", "exec 3<>/dev/tcp/10.9.0.1/80")
		return err == nil && r.Code == 0
	})

	// The devices: each has one of the older releases. Some start while others install.
	all := make([]*bed.Device, devices)
	install := func(d *bed.Device, what string) error {
		r, err := d.Run("mender-app", "install", "--commit", what)
		if err == nil && r.Code != 0 {
			err = errors.New(r.Output())
		}
		return err
	}
	var g errgroup.Group
	g.SetLimit(4)
	for i := range all {
		d := bed.Start(t)
		require.NoError(t, d.WithoutMender())
		e2e.ShortHealthWindow(t, d)
		port := fmt.Sprint("port", i)
		require.NoError(t, bed.Cable(site, port, "", d, "site", fmt.Sprintf("10.9.0.%d/24", 10+i)))
		site.MustRun(t, "ip", "link", "set", port, "master", "site")
		e2e.WritePEM(t, d.Path("/etc/mender/verify.pem"), "PUBLIC KEY", public)
		d.MustRun(t, "bash", "-ec", `cat >>/etc/mender/mender-app.conf <<-'END'
			artifact_verify_key = "/etc/mender/verify.pem"
			content_mirrors = ["http://10.9.0.1/content"]
		END`)
		file, err := os.ReadFile(filepath.Join(releases, fmt.Sprintf("shop-%d.mender", 1+i%bases)))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(d.Share("base.mender"), file, 0o644))
		all[i] = d
		g.Go(func() error { return install(d, d.Share("base.mender")) })
	}
	require.NoError(t, g.Wait())

	before, err := far.Sent("line")
	require.NoError(t, err)
	began := time.Now()
	g = errgroup.Group{}
	for _, d := range all {
		g.Go(func() error { return install(d, "http://10.9.0.1/content/"+next+".mender") })
	}
	require.NoError(t, g.Wait(), "%s", &trouble)
	took := time.Since(began)
	after, err := far.Sent("line")
	require.NoError(t, err)
	for _, d := range all {
		require.Contains(t, d.MustRun(t, "mender-app", "list"), next)
	}

	// What crossed the line.
	from.mu.Lock()
	defer from.mu.Unlock()
	var files, sent int64
	for name, bytes := range from.sent {
		size := e2e.FileSize(t, filepath.Join(store, name))
		files += size
		sent += bytes
	}
	require.Len(t, from.sent, bases+1, "the artifact, and a delta for each base")
	for part, times := range from.whole {
		require.Equal(t, 1, times, part)
	}
	require.NotEmpty(t, from.cut)
	require.LessOrEqual(t, sent, files+int64(len(from.cut))*siteSlice/4)
	require.Less(t, after-before, 2*files, "with headers and what was lost")

	// What the devices asked the proxy for. One cut ends the answer of one device. nginx goes
	// on with the next slice, so the device may find the file wrong and fetch it again, from
	// the cache.
	log, err := os.ReadFile(site.Path("/tmp/asked"))
	require.NoError(t, err)
	var resumed, anew int
	asked := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+ \S+) 20[06] (\S+)`).FindAllStringSubmatch(string(log), -1) {
		switch {
		case m[2] != "-":
			resumed++
		case asked[m[1]]:
			anew++
		}
		asked[m[1]] = true
	}
	require.Positive(t, resumed, "%s", log)
	require.LessOrEqual(t, resumed+anew, 2*len(from.cut), "%s", log)
	t.Logf("figures: %d devices in %v; %d bytes of files sent %d bytes in %d requests, %d on the line; %d connections cut; %d downloads resumed, %d begun again",
		devices, took.Round(time.Second), files, sent, from.requests, after-before, len(from.cut), resumed, anew)
}
