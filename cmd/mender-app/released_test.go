package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable/faults"
)

var update = flag.Bool("update", false, "write the stores of this release that are missing")

// released has a directory for each release, with the devices that its programs left.
const released = "testdata/released"

// steps are calls of mender-app that succeed.
type steps [][]string

func step(args ...string) []string { return args }

// left is a device that the programs of a release leave: with a deployment in a phase.
type left struct {
	phase string
	calls steps  // the last one is killed at the point, if there is one, and may fail
	point string // of app, with its call
	fails bool   // what the artifact brings does not become healthy
	// ends are ways in which a newer release may end it, and what runs then.
	ends map[string]steps
}

var leftDevices = []left{
	{
		phase: "downloading", calls: steps{step("install", "v2.mender")}, point: "app DownloadWithFileSizes/called.LOAD:1",
		ends: map[string]steps{"one": {step("resume")}, "two": {step("resume"), step("install", "--commit", "v2.mender")}},
	},
	{
		phase: "loaded", calls: steps{step("install", "v2.mender")}, point: "app ArtifactInstall/enter.installing:1",
		ends: map[string]steps{"one": {step("resume")}, "two": {step("resume"), step("install", "--commit", "v2.mender")}},
	},
	{
		phase: "installing", calls: steps{step("install", "v2.mender")}, point: "app ArtifactInstall/called.ROLLOUT:1",
		ends: map[string]steps{"one": {step("resume")}, "two": {step("resume"), step("install", "--commit", "v2.mender")}},
	},
	{
		phase: "installed", calls: steps{step("install", "v2.mender")},
		ends: map[string]steps{"one": {step("rollback")}, "two": {step("resume"), step("commit")}},
	},
	{
		phase: "committed", calls: steps{step("install", "v2.mender"), step("commit")}, point: "app Cleanup/enter.cleaning:1",
		ends: map[string]steps{"one": {step("resume"), step("rollback", "shop")}, "two": {step("resume")}},
	},
	{
		phase: "cleaning", calls: steps{step("install", "v2.mender"), step("commit")}, point: "app Cleanup/wrote.app.json:1",
		ends: map[string]steps{"one": {step("resume"), step("rollback", "shop")}, "two": {step("resume")}},
	},
	{
		phase: "rolling-back", calls: steps{step("install", "v2.mender"), step("rollback")}, point: "app ArtifactRollback/called.ROLLBACK:1",
		ends: map[string]steps{"one": {step("resume")}, "two": {step("resume"), step("install", "--commit", "v2.mender")}},
	},
	{
		phase: "rolled-back", calls: steps{step("install", "v2.mender"), step("rollback")}, point: "app Cleanup/call.DELETE:1",
		ends: map[string]steps{"one": {step("resume")}, "two": {step("resume"), step("install", "--commit", "v2.mender")}},
	},
	{
		phase: "failed", calls: steps{step("install", "left.mender")}, point: "app Cleanup/*:1", fails: true,
		ends: map[string]steps{"one": {step("resume"), step("rollback", "shop")}, "two": {step("resume"), step("install", "--commit", "v2.mender")}},
	},
}

// TestReleasedPhases: the programs go on with the store of each release, in each phase of
// a deployment. It ends in one of the two releases of the application, whole, and the next
// update is installed and taken back.
func TestReleasedPhases(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	for _, l := range leftDevices {
		t.Run(l.phase, func(t *testing.T) {
			t.Parallel()
			for _, archive := range archives(t, l.phase, l.make) {
				for runs, calls := range l.ends {
					d := unpacked(t, archive)
					s := store.At(filepath.Join(d.Dir, "store"))
					a, err := s.App("shop")
					require.NoError(t, err, archive)
					require.NotNil(t, a.Deployment, archive)
					require.Equal(t, l.phase, string(a.Deployment.Phase), archive)
					mustRun(t, d, "status")
					for _, call := range calls {
						mustRun(t, d, call...)
					}
					where := archive + ", to " + runs
					settled := func(runs string) {
						t.Helper()
						a, err := s.App("shop")
						require.NoError(t, err, where)
						require.Nil(t, a.Deployment, where)
						require.Equal(t, runs, d.Running("shop"), where)
						mustRun(t, d, "verify", "shop")
						require.Equal(t, "nothing to resume\n", mustRun(t, d, "resume"), where)
					}
					settled(runs)
					mustRun(t, d, "install", "--commit", "v3.mender")
					settled("three")
					mustRun(t, d, "rollback", "shop")
					settled(runs)
					images, err := os.ReadDir(filepath.Join(d.Dir, "fake/images"))
					require.NoError(t, err)
					require.Len(t, images, 2, "%s: what runs and what it was taken back from: %v", where, images)
				}
			}
		})
	}
}

func (l left) make(t *testing.T, d *devicetest.Device) {
	mustRun(t, d, "install", "--commit", "v1.mender")
	behave := filepath.Join(d.Dir, "fake/behave")
	if l.fails {
		require.NoError(t, os.WriteFile(behave, []byte("ROLLOUT unhealthy\n"), 0o644))
	}
	for i, call := range l.calls {
		if i < len(l.calls)-1 || l.point == "" {
			mustRun(t, d, call...)
			continue
		}
		_, stderr, err := d.Run([]string{faults.Env + "=" + l.point + ":kill-both"}, "mender-app", call...)
		require.ErrorContains(t, err, "killed", stderr)
	}
	require.NoError(t, os.RemoveAll(behave))
}

// views print all that a store has, in fields that are only added.
var views = map[string][]string{
	"history":   {"history", "--json"},
	"logs":      {"logs", "shop", "--deployment", "2", "--json"},
	"values":    {"values", "show", "--json"},
	"overrides": {"overrides", "show", "till", "--json"},
	"staged":    {"staged", "--json"},
	"queue":     {"queue", "--json"},
	"status":    {"status", "--stored", "--json"},
}

// TestReleasedStores: all that the store of a release has is read and shown as that release
// has shown it, and used.
func TestReleasedStores(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	t.Parallel()
	for _, archive := range archives(t, "settled", makeSettled) {
		d := unpacked(t, archive)
		for name, call := range views {
			want, err := os.ReadFile(filepath.Join(d.Dir, "want", name))
			require.NoError(t, err)
			text := strings.ReplaceAll(string(want), "$DIR", d.Dir)
			has(t, archive+": "+name, documents(t, text), documents(t, mustRun(t, d, call...)))
		}
		mustRun(t, d, "hold", "--show", "--json") // it has ended by now
		mustRun(t, d, "unhold")
		mustRun(t, d, "reconcile")
		require.Equal(t, "two sv", d.Running("shop"), archive)
		require.Equal(t, "till", d.Running("till"), archive)
		mustRun(t, d, "install", "--staged", "--commit", "shop")
		require.Equal(t, "three", d.Running("shop"), archive)
		mustRun(t, d, "rollback", "shop")
		require.Equal(t, "two sv", d.Running("shop"), archive)
		mustRun(t, d, "overrides", "clear", "till")
		mustRun(t, d, "values", "unset", "--app", "shop", "CURRENCY")
		mustRun(t, d, "purge", "--force", "till")
		require.Equal(t, "nothing to resume\n", mustRun(t, d, "resume"), archive)
	}
}

// makeSettled makes a device with two applications, a kept release, values, an override, a
// service that is off, a staged artifact, a task that waits and a hold.
func makeSettled(t *testing.T, d *devicetest.Device) {
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "change.yaml"), []byte("more: true\n"), 0o644))
	for _, call := range (steps{
		step("values", "set", "LANGUAGE=sv"),
		step("install", "--commit", "managed1.mender"),
		step("values", "set", "--app", "shop", "CURRENCY=SEK"),
		step("install", "--commit", "managed2.mender"),
		step("install", "--commit", "till.mender"),
		step("overrides", "set", "till", "change.yaml"),
		step("disable", "till", "web"),
		step("stage", "v3.mender"),
		step("hold", "--reason", "a new kernel", "--for", "24h"),
	}) {
		mustRun(t, d, call...)
	}
	require.NoError(t, os.Remove(filepath.Join(d.Dir, "fake/running/shop")))
	_, _, err := d.Run(nil, "mender-app", "reconcile", "--event", "boot")
	require.Error(t, err, "the hold keeps it away")
	require.NoError(t, os.Mkdir(filepath.Join(d.Dir, "want"), 0o755))
	for name, call := range views {
		text := strings.ReplaceAll(mustRun(t, d, call...), d.Dir, "$DIR")
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "want", name), []byte(text), 0o644))
	}
}

// documents are the JSON documents in what a program printed.
func documents(t *testing.T, text string) (list []any) {
	t.Helper()
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		err := dec.Decode(&v)
		if err == io.EOF {
			return list
		}
		require.NoError(t, err, text)
		list = append(list, v)
	}
}

// has requires that a value has all that another one has.
func has(t *testing.T, where string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, "%s is %v", where, got)
		for key, v := range want {
			has(t, where+"."+key, v, object[key])
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok, "%s is %v", where, got)
		require.Len(t, list, len(want), where)
		for i, v := range want {
			has(t, where+"[]", v, list[i])
		}
	default:
		require.Equal(t, want, got, where)
	}
}

// archives are the devices of a name that all releases have left. Each release has one: with
// -update the one of this tree is made if it is missing. What a release has left is never
// written again.
func archives(t *testing.T, name string, make func(*testing.T, *devicetest.Device)) []string {
	t.Helper()
	ours := filepath.Join(released, version.Number, name+".tar.gz")
	if _, err := os.Stat(ours); err != nil {
		require.True(t, *update, "this release has no %s: go test ./cmd/mender-app -run Released -update", ours)
		d := stockedDevice(t)
		make(t, d)
		pack(t, d, ours)
	}
	list, err := filepath.Glob(filepath.Join(released, "*", name+".tar.gz"))
	require.NoError(t, err)
	return list
}

// stockedDevice makes a device with the artifacts that these tests install.
func stockedDevice(t *testing.T) *devicetest.Device {
	t.Helper()
	dir := t.TempDir()
	d, err := devicetest.NewDevice(dir)
	require.NoError(t, err)
	for file, a := range map[string]devicetest.Artifact{
		"v1.mender":       {Name: "shop-1", Compose: "one", Images: []string{"web:1=web-one"}},
		"v2.mender":       {Name: "shop-2", Compose: "two", Images: []string{"web:2=web-two"}},
		"v3.mender":       {Name: "shop-3", Compose: "three", Images: []string{"web:3=web-three"}},
		"left.mender":     {Name: "shop-2", Compose: "two", Images: []string{"web:2=web-two"}, Policy: "[upgrades]\nrollback_on_failure = false\n"},
		"managed1.mender": {Name: "shop-1", Compose: "one $LANGUAGE", Images: []string{"web:1=web-one"}, Policy: "managed = true\n"},
		"managed2.mender": {Name: "shop-2", Compose: "two $LANGUAGE", Images: []string{"web:2=web-two"}, Policy: "managed = true\n"},
		"till.mender":     {Name: "till-1", App: "till", Compose: "till", Images: []string{"web:4=web-till"}},
	} {
		if a.App == "" {
			a.App = "shop"
		}
		require.NoError(t, a.Write(filepath.Join(dir, file)))
	}
	return d
}

// packed is what an archive has of a device: the store, the engine, and what was shown.
var packed = []string{"store", "fake/images", "fake/running", "want"}

func pack(t *testing.T, d *devicetest.Device, archive string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(archive), 0o755))
	f, err := os.Create(archive)
	require.NoError(t, err)
	defer f.Close()
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, part := range packed {
		err := filepath.WalkDir(filepath.Join(d.Dir, part), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Name() == "reserve" { // 1 MiB of random data; the next deployment writes it
				return err
			}
			info, err := e.Info()
			require.NoError(t, err)
			target := ""
			if e.Type() == fs.ModeSymlink {
				target, err = os.Readlink(path)
				require.NoError(t, err)
			}
			h, err := tar.FileInfoHeader(info, target)
			require.NoError(t, err)
			h.Name, err = filepath.Rel(d.Dir, path)
			require.NoError(t, err)
			h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
			h.ModTime = time.Unix(0, 0)
			require.NoError(t, w.WriteHeader(h))
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NotContains(t, string(data), d.Dir, "%s names its place", h.Name)
				_, err = w.Write(data)
				require.NoError(t, err)
			}
			return nil
		})
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}

// unpacked is a device with what an archive has.
func unpacked(t *testing.T, archive string) *devicetest.Device {
	t.Helper()
	d := stockedDevice(t)
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return d
		}
		require.NoError(t, err)
		path := filepath.Join(d.Dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(path, 0o755))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(h.Linkname, path))
			continue
		default:
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}
		require.NoError(t, os.Chmod(path, h.FileInfo().Mode().Perm()))
	}
}
