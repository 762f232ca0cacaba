package main

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed/mutants"
)

// hostileTime is how long an artifact may take until it is refused. One that is
// started takes as long as any update that fails.
const hostileTime = 10 * time.Second

// TestHostileArtifacts installs artifacts with one change each, at any level from the
// container down to the manifests and the files in the layers, with right or wrong
// checksums, through the Mender client and mender-app install in turn. Whatever was
// changed, the cluster, the node's images, the store and what the client believes are
// afterwards as before. MENDER_APP_HOSTILE is how many artifacts, MENDER_APP_SEED the
// seed. No other test runs meanwhile: the whole cluster is compared.
func TestHostileArtifacts(t *testing.T) {
	count, seed := number(t, "MENDER_APP_HOSTILE", 8), uint64(number(t, "MENDER_APP_SEED", 1))
	d := newDevice(t, "K8S_HEALTH_TIMEOUT=20")
	conf := filepath.Join(d.dir, "etc/mender-app.conf")
	text, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(text, "device_type_file = %q\n", d.dir+"/data/device_type"), 0o644))
	quick := func(version string) string {
		return strings.Replace(manifests(version), "progressDeadlineSeconds: 180", "progressDeadlineSeconds: 8", 1)
	}
	v1, v2, v3 := d.image("1"), d.image("2"), d.image("3")
	d.installs(d.artifact("1", quick("1"), "--image="+v1))
	d.at("1")
	var originals [][]byte
	for _, file := range []string{
		d.artifact("2", quick("2"), "--image="+v2),
		d.artifact("3", quick("3"), "--deep-delta", "--image="+v1+","+v3),
	} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, mutants.Consistent(data), file) // else no checksum is made right
		originals = append(originals, data)
	}

	stop := calls(d.submodule())
	before := d.world()
	file := filepath.Join(t.TempDir(), "mutant.mender")
	accepted, slowest := 0, time.Duration(0)
	for i := range count {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		data, what := mutants.Make(r, originals[r.IntN(len(originals))])
		install, rollback := []string{"mender", "--data", d.dir + "/data", "--no-syslog", "install"}, []string{"mender", "--data", d.dir + "/data", "--no-syslog", "rollback"}
		if i%2 == 1 {
			program := filepath.Join(d.dir, "bin/mender-app")
			install, rollback = []string{program, "install", "--force", "--unsigned"}, []string{program, "rollback"}
		}
		what = fmt.Sprintf("mutant %d, %s: %s", i, install[0], what)
		require.NoError(t, os.WriteFile(file, data, 0o644))

		start := time.Now()
		cmd := d.command(append(install, file)...)
		said, err := cmd.CombinedOutput()
		took := time.Since(start)
		// The client in Go itself panics if there is no type-info.
		require.NotRegexp(t, `(?s)goroutine .*github\.com/mender-app/mender-app/`, string(said), what)
		require.Positive(t, cmd.ProcessState.ExitCode()+1, what) // no signal ended it
		if !strings.Contains(string(said), "rolling out (app ") {
			slowest = max(slowest, took)
			if took > hostileTime {
				t.Errorf("%s took %v\n%s", what, took, said)
			}
		}
		sound := mutants.Consistent(data)
		if err == nil {
			accepted++
			require.True(t, sound, "%s was installed", what)
			d.byHand(rollback...)
		}
		after := d.world()
		if sound { // it may have been started, and the old release then is again
			for end := time.Now().Add(time.Minute); !maps.Equal(unversioned(before), unversioned(after)) && time.Now().Before(end); after = d.world() {
				time.Sleep(time.Second) // a namespace takes a while to go
			}
			require.Equal(t, unversioned(before), unversioned(after), "%s\n%s", what, said)
		} else {
			require.Equal(t, before, after, "%s\n%s", what, said)
		}
		before = after
		require.Equal(t, "1", d.says(), what)
	}
	for verb, c := range stop() {
		t.Logf("%s: at most %d KiB", verb, c.peak)
		require.Less(t, c.peak, int64(64<<10), "KiB in %s", verb)
	}
	t.Logf("%d mutants, %d of them installed and taken back, the slowest refusal in %v", count, accepted, slowest)
	d.provides("1")
	d.byHand(filepath.Join(d.dir, "bin/mender-app"), "verify", d.app)
}

// number is the number in a variable of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// world is what no refused artifact may change: the objects of the whole cluster, the
// node's images, the files of the device, and what the Mender client believes. Objects
// that the cluster itself writes again and again are left out.
func (d *device) world() map[string]string {
	d.t.Helper()
	w := map[string]string{}
	kinds := "namespaces,deployments,services,persistentvolumeclaims,configmaps,secrets,serviceaccounts,clusterroles,customresourcedefinitions"
	text := d.Kubectl("get", kinds, "--all-namespaces", "-o",
		`jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.generation} {.spec} {.data} {.binaryData} {.metadata.labels}{"\n"}{end}`)
	require.Contains(d.t, text, "Deployment "+d.ns+"/web ")
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, " ", 3)
		require.Len(d.t, fields, 3, line)
		w[fields[0]+" "+fields[1]] = fields[2]
	}
	images := strings.Fields(d.Ctr("images", "ls", "-q"))
	slices.Sort(images)
	w["images"] = strings.Join(images, "\n")
	provides, err := d.mender("show-provides")
	require.NoError(d.t, err)
	for line := range strings.Lines(provides) {
		if !strings.HasPrefix(line, "time=") { // the client's log
			w["provides"] += line
		}
	}
	for _, tree := range []string{"store", "etc", "share"} {
		require.NoError(d.t, filepath.WalkDir(filepath.Join(d.dir, tree), func(path string, e fs.DirEntry, err error) error {
			name, _ := filepath.Rel(d.dir, path)
			if err != nil || e.IsDir() || counted.MatchString(name) {
				return err
			}
			if e.Type()&fs.ModeSymlink != 0 {
				w[name], err = os.Readlink(path)
				return err
			}
			data, err := os.ReadFile(path)
			w[name] = string(data)
			if tree == "share" {
				w[name] = fmt.Sprint(len(data))
			}
			return err
		}))
	}
	return w
}

// counted are files of the store that a refused deployment changes too: it is counted
// and recorded in the history.
var counted = regexp.MustCompile(`^store/(\.mender-app/|[^/]+/app\.json$)`)

// unversioned is a world without what starting a release and going back changes of the
// same objects.
func unversioned(w map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range w {
		if kind, _, ok := strings.Cut(name, " "); ok && (kind == "Deployment" || kind == "ConfigMap") {
			value = ""
		}
		out[name] = value
	}
	return out
}
