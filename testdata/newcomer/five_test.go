package newcomer

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/corpus"
)

// What a release engineer waits for and pays for, on two processors. What is compared is
// processor time, because a machine may have other work.
const (
	firstTime    = 2 * 5 * time.Minute
	firstByXz    = 0.93 // of the bytes that xz makes
	fastSpeed    = 40e6 // bytes of layers a second, on both processors
	secondTime   = 2 * time.Minute
	secondSize   = 40_000
	manifestTime = 2 * time.Second
)

// TestBenchFiveServices makes the first artifact of five services from a private registry,
// the second after a change of one file, and the third after a change of the Compose file
// alone. Beside the first, xz and zstd compress the same layers:
//
//	MENDER_APP_BENCH=1 go test -run TestBenchFiveServices -v ./testdata/newcomer
//
// MENDER_APP_PAIRS chooses some of the services. The images are built once, of packages of
// Debian and modules of Go.
func TestBenchFiveServices(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("MENDER_APP_BENCH is not set: it takes minutes")
	}
	cache, err := corpus.Dir()
	require.NoError(t, err)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	chosen := strings.Fields(os.Getenv("MENDER_APP_PAIRS"))
	var services []string
	var whole, layers int64
	content, err := os.Create(filepath.Join(t.TempDir(), "layers"))
	require.NoError(t, err)
	defer content.Close()
	seen := map[string]bool{}
	for _, p := range corpus.Newcomer() {
		service := strings.TrimPrefix(p.Name, "newcomer-")
		if len(chosen) > 0 && !slices.Contains(chosen, service) {
			continue
		}
		_, err := p.Build(t.Context(), cache)
		require.NoError(t, err)
		for _, v := range []string{"1", "2"} {
			path := filepath.Join(cache, p.Name, "v"+v+".tar")
			img, err := tarball.ImageFromPath(path, nil)
			require.NoError(t, err)
			ref, err := name.ParseReference(host + "/shop/" + service + ":" + v)
			require.NoError(t, err)
			require.NoError(t, remote.Write(ref, img))
			if v == "2" {
				continue
			}
			info, err := os.Stat(path)
			require.NoError(t, err)
			whole += info.Size()
			config, err := img.ConfigFile()
			require.NoError(t, err)
			all, err := img.Layers()
			require.NoError(t, err)
			for i, l := range all {
				if id := config.RootFS.DiffIDs[i].String(); !seen[id] {
					seen[id] = true
					body, err := l.Uncompressed()
					require.NoError(t, err)
					n, err := io.Copy(content, body)
					require.NoError(t, err)
					require.NoError(t, body.Close())
					layers += n
				}
			}
		}
		services = append(services, service)
	}
	require.NotEmpty(t, services)

	program := filepath.Join(t.TempDir(), "app-gen")
	out, err := exec.Command("go", "build", "-trimpath", "-o", program, "../../cmd/app-gen").CombinedOutput()
	require.NoError(t, err, "%s", out)
	fmt.Printf("%d services, images %.1f MB, different layers %.1f MB\n", len(services), float64(whole)/1e6, float64(layers)/1e6)
	compressed := func(program string, args ...string) int64 {
		c := exec.Command(program, args...)
		file, err := os.Open(content.Name())
		require.NoError(t, err)
		defer file.Close()
		out, err := os.Create(filepath.Join(t.TempDir(), "compressed"))
		require.NoError(t, err)
		defer out.Close()
		c.Stdin, c.Stdout = file, out
		began := time.Now()
		require.NoError(t, c.Run())
		info, err := out.Stat()
		require.NoError(t, err)
		fmt.Printf("%s: %.1f MB, %.0f s of processor, %.0f s here\n", strings.Join(c.Args, " "), float64(info.Size())/1e6, (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds(), time.Since(began).Seconds())
		require.NoError(t, os.Remove(out.Name()))
		return info.Size()
	}
	for _, effort := range []string{"--fast", ""} {
		t.Run(cmp.Or(effort, "default"), func(t *testing.T) {
			shop := filepath.Join(t.TempDir(), "shop")
			require.NoError(t, os.Mkdir(shop, 0o755))
			compose := func(node, more string) {
				text := more + "services:\n"
				for _, s := range services {
					v := "1"
					if s == "node" {
						v = node
					}
					text += fmt.Sprintf("  %s: {image: %q}\n", s, host+"/shop/"+s+":"+v)
				}
				require.NoError(t, os.WriteFile(filepath.Join(shop, "compose.yaml"), []byte(text), 0o644))
			}
			run := func(args ...string) (processor, wall time.Duration) {
				c := exec.Command(program, args...)
				c.Dir = shop
				c.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(filepath.Dir(shop), "cache"))
				var said bytes.Buffer
				c.Stdout, c.Stderr = &said, &said
				began := time.Now()
				require.NoError(t, c.Run(), "%s", &said)
				return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), time.Since(began)
			}
			size := func(artifact string) int64 {
				info, err := os.Stat(filepath.Join(shop, "releases", artifact+".mender"))
				require.NoError(t, err)
				return info.Size()
			}
			compose("1", "")
			run("init", "--device-type", "gateway", "--platform", "linux/amd64")
			args := []string{"-n", "shop-1"}
			if effort != "" {
				args = append(args, effort)
			}
			first, waited := run(args...)
			fmt.Printf("first release: %.1f MB, %.0f s of processor, %.0f s here\n", float64(size("shop-1"))/1e6, first.Seconds(), waited.Seconds())
			compose("2", "")
			second, waited := run("-n", "shop-2")
			fmt.Printf("second release: %.1f kB, %.1f s of processor, %.1f s here\n", float64(size("shop-2"))/1e3, second.Seconds(), waited.Seconds())
			compose("2", "x-comment: nothing else changed\n")
			third, waited := run("-n", "shop-3")
			fmt.Printf("a change of the manifest alone: %.1f kB, %.1f s of processor, %.1f s here\n", float64(size("shop-3"))/1e3, third.Seconds(), waited.Seconds())
			if effort == "" {
				require.Less(t, first, firstTime)
				require.Less(t, float64(size("shop-1")), firstByXz*float64(compressed("xz", "-9e", "-T2")))
				compressed("zstd", "-19", "-T2", "--long=27")
			} else {
				require.Greater(t, 2*float64(layers)/first.Seconds(), fastSpeed)
			}
			require.Less(t, third, manifestTime)
			require.Less(t, second, secondTime)
			require.Less(t, size("shop-2"), int64(secondSize))
		})
	}
}
