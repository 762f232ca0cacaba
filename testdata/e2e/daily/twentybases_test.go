package daily

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// contentServer serves a directory with ranges, and other bytes of the same size below
// /lies/. It prints a line for each request: the path, and where the range begins.
const contentServer = `
import http.server, os, re, shutil, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = os.path.basename(self.path)
        with open(os.path.join(sys.argv[1], name), "rb") as f:
            content = f.read()
        if self.path.startswith("/lies/"):
            content = bytes(len(content))
        m = re.match("bytes=([0-9]+)-$", self.headers.get("Range", ""))
        begin = int(m.group(1)) if m else 0
        print(self.path, begin, flush=True)
        self.send_response(206 if m else 200)
        self.send_header("ETag", '"%s"' % self.path)
        if m:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (begin, len(content) - 1, len(content)))
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:])
    def log_message(self, *a):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8097), Handler).serve_forever()
`

// twentyBases are twenty releases of a service with 9 MB of data, a little of which each
// release changes, and the twenty-first: an artifact without images, and the store with
// its content.
func twentyBases(t *testing.T, d *bed.Device) (releases, small, store string) {
	t.Helper()
	const next = 21
	releases, store, small = d.Share("releases"), d.Share("content"), d.Share("small.mender")
	require.NoError(t, os.MkdirAll(releases, 0o755))
	web := e2e.Web(t, "1", "")
	plain := web.Layers
	data := make([]byte, 9<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	inventory := "version\n"
	for n := 1; n <= next; n++ {
		_, _ = rand.NewChaCha8([32]byte{2, byte(n)}).Read(data[n<<14:][:4<<10])
		web.Ref = fmt.Sprintf("shop/web:%d", n)
		web.Layers = append(plain[:len(plain):len(plain)], []bed.File{{Name: "srv/data", Data: data}})
		name := fmt.Sprintf("shop-%d", n)
		file := e2e.Generate(t, d, "shop", name, fmt.Sprint(n), e2e.EditionCompose(n), e2e.Archive(t, web))
		require.NoError(t, os.Rename(file, filepath.Join(releases, name+".mender")))
		if n < next {
			inventory += name + "\n"
		}
	}
	programs, err := bed.Programs()
	require.NoError(t, err)
	dir := t.TempDir()
	plan, devices := filepath.Join(dir, "plan.json"), filepath.Join(dir, "devices.csv")
	require.NoError(t, os.WriteFile(devices, []byte(inventory), 0o600))
	for _, args := range [][]string{
		{"plan", "--inventory", devices, "--releases", releases, "-n", fmt.Sprint("shop-", next), "-o", plan},
		{"run", plan, store, "--releases", releases},
		{"publish", plan, store, "--source", "http://127.0.0.1:8097/content", "-o", small},
	} {
		text, err := exec.Command(filepath.Join(programs, "app-gen"), append([]string{"fleet"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
	return releases, small, store
}

// TestTwentyBases: one artifact for devices with twenty older releases, with mender-app
// alone. Each device fetches its own delta, from a web server or from a registry; one that
// has none takes the whole image, and goes on where it was after a power cut; one passes a
// mirror that lies. The store and the history are as after an update whose images are in
// the artifact.
func TestTwentyBases(t *testing.T) {
	bed.Require(t, "docker-registry")
	d := e2e.Device(t)
	require.NoError(t, d.WithoutMender())
	releases, small, store := twentyBases(t, d)
	t.Logf("figures: the artifact has %d bytes", e2e.FileSize(t, small))
	require.Less(t, e2e.FileSize(t, small), int64(20_000))

	script := d.Share("server.py")
	require.NoError(t, os.WriteFile(script, []byte(contentServer), 0o644))
	requests, err := os.Create(filepath.Join(t.TempDir(), "requests"))
	require.NoError(t, err)
	defer requests.Close()
	server := d.Command(t.Context(), "python3", script, store)
	server.Stdout = requests
	require.NoError(t, server.Start())
	defer server.Process.Kill()
	config := d.Share("registry.yml")
	require.NoError(t, os.WriteFile(config, []byte("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: "+d.Share("registry")+"}}\nhttp: {addr: \"127.0.0.1:5000\"}\n"), 0o644))
	registry := d.Command(t.Context(), "docker-registry", "serve", config)
	require.NoError(t, registry.Start())
	defer registry.Process.Kill()
	for _, port := range []string{"8097", "5000"} {
		bed.Eventually(t, time.Minute, "the server answers", func() bool {
			r, err := d.Run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port)
			return err == nil && r.Code == 0
		})
	}
	d.MustRun(t, "app-gen", "mirror", small, "oci:127.0.0.1:5000/shop/content", "--from", store)

	conf := d.Path("/etc/mender/mender-app.conf")
	plain, err := os.ReadFile(conf)
	require.NoError(t, err)
	configured := func(lines string) { require.NoError(t, os.WriteFile(conf, append(plain, "\n"+lines+"\n"...), 0o600)) }
	asked := func() (list []string) {
		t.Helper()
		text, err := os.ReadFile(requests.Name())
		require.NoError(t, err)
		require.NoError(t, os.Truncate(requests.Name(), 0))
		_, err = requests.Seek(0, 0)
		require.NoError(t, err)
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\x00", "")) {
			list = append(list, strings.TrimSpace(line))
		}
		return list
	}
	install := func(file string) { t.Helper(); d.MustRun(t, "mender-app", "install", "--unsigned", "--commit", file) }
	base := func(n int) { t.Helper(); install(filepath.Join(releases, fmt.Sprintf("shop-%d.mender", n))) }
	// left is what an update over a base leaves: the files of the store, but for the base's
	// number, and what the history says.
	left := func(base int) string {
		t.Helper()
		d.MustRun(t, "mender-app", "verify", "shop")
		files := d.MustRun(t, "bash", "-ec", `cd /data/mender-app; find . -printf '%y %m %p\n' | grep -v -e '/download' -e '/shop.logs/' | sort; ls -A .mender-app/content 2>/dev/null || true`)
		history := d.MustRun(t, "mender-app", "history", "shop", "--limit", "1", "--json")
		var says []string
		for _, field := range []string{"status", "to"} {
			says = append(says, regexp.MustCompile(`"`+field+`": *("[^"]*"|\{[^}]*\})`).FindAllString(history, -1)...)
		}
		return strings.ReplaceAll(files, fmt.Sprint("1-shop-", base), "base") + strings.Join(says, "\n")
	}
	purge := func() { t.Helper(); d.MustRun(t, "mender-app", "purge", "--force", "--data", "shop") }

	// What an update whose images are in the artifact leaves, and a first installation.
	whole := filepath.Join(releases, "shop-21.mender")
	base(1)
	install(whole)
	want := left(1)
	purge()
	install(whole)
	first := left(0)
	purge()
	asked()

	const mirror = `content_mirrors = ["http://127.0.0.1:5000/v2/shop/content/blobs"]`
	own := map[string]int{}
	for _, c := range []struct {
		has   int
		conf  string
		asked int // of the web server
	}{
		{1, "", 1}, {10, "", 1}, {20, "", 1},
		{5, mirror, 0},
		{15, `content_mirrors = ["http://127.0.0.1:8097/lies"]`, 2},
	} {
		configured(c.conf)
		base(c.has)
		install(small)
		require.Equal(t, want, left(c.has), "over %d", c.has)
		list := asked()
		require.Len(t, list, c.asked, "over %d", c.has)
		for _, line := range list {
			require.Regexp(t, `^/(content|lies)/[0-9a-f]{64} 0$`, line)
			name := filepath.Base(strings.Fields(line)[0])
			require.Less(t, e2e.FileSize(t, filepath.Join(store, name)), int64(200_000), "over %d", c.has)
			own[name] = c.has
		}
		purge()
	}
	require.Len(t, own, 4, "each device asked for its own delta")

	// Without a base, and the power fails when most of the image is there.
	for name, places := range map[string]string{"the web server": "", "the registry": mirror} {
		configured(places)
		began := d.Command(t.Context(), "mender-app", "install", "--unsigned", "--commit", small)
		began.Env = append(began.Env, "MENDER_APP_FAULT=mender-app fetch/wrote.download.json:1:stop") // after 8 MiB
		require.NoError(t, began.Start())
		bed.Eventually(t, 2*time.Minute, "most of the image is durable", func() bool {
			r, err := d.Run("bash", "-c", `grep -lsE '^State:\s+T' /proc/[0-9]*/status`)
			return err == nil && r.Code == 0
		})
		d.MustRun(t, "bash", "-ec", "kill -KILL $(pidof mender-app app)")
		d.CrashEngine()
		_ = began.Wait() // it was killed
		require.NoError(t, d.StartEngine())
		d.MustRun(t, "mender-app", "resume")
		require.NotContains(t, d.MustRun(t, "docker", "ps", "-a"), "shop", name)
		configured(places)
		install(small)
		require.Equal(t, first, left(0), name)
		list := asked()
		if places == "" {
			require.Len(t, list, 2)
			require.Regexp(t, ` 0$`, list[0])
			require.NotRegexp(t, ` 0$`, list[1], "it goes on where it was")
		} else {
			require.Empty(t, list)
		}
		purge()
	}
}
