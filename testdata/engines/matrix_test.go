package engines

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

const composeFile = `services:
  web:
    image: IMAGE
    network_mode: none
    stop_grace_period: 2s
`

// The life of an application's images, whose base was loaded from an archive, or was
// pulled from a registry and is stored as gzip.
func TestImages(t *testing.T) {
	onEngines(t, func(t *testing.T, d *bed.Device) {
		registry(t, d)
		for _, base := range []string{"archive", "pulled"} {
			t.Run(base, func(t *testing.T) { images(t, d, base) })
		}
	})
}

func images(t *testing.T, d *bed.Device, base string) {
	a := newApp(t, d, base)
	one, two, three := newPicture(t, base, base+"/web:1", "1"), newPicture(t, base, base+"/web:2", "2"), newPicture(t, base, base+"/web:3", "3")
	pulled := "localhost:5000/" + one.URL
	if base == "pulled" {
		path := one.archive(t, d, 0)
		d.MustRun(t, "skopeo", "copy", "-q", "--dest-tls-verify=false", "docker-archive:"+path, "docker://"+pulled)
		d.MustRun(t, "docker", "pull", "-q", pulled)
		r := a.load(one, os.DevNull)
		require.Contains(t, r.Stderr, "present already")
	} else {
		a.load(one, one.archive(t, d, 0))
	}
	own := func(p picture) string { // the application's own reference
		return "mender-app.local/" + a.name + ":" + p.Digest.Hex()
	}
	wholes := func(list ...picture) {
		t.Helper()
		for _, p := range list {
			p.whole(t, d, own(p))
		}
	}
	release := func(p picture) []submodules.Component { return []submodules.Component{p.Component} }
	rollout := func(p picture, verb string) {
		t.Helper()
		dir := a.manifests(p.URL, strings.ReplaceAll(composeFile, "IMAGE", p.URL))
		a.call(release(p), "", verb, a.name, dir)
		require.Equal(t, "running "+p.URL, a.container("web", "{{.State.Status}} {{.Config.Image}}"))
	}
	wholes(one)
	rollout(one, submodules.VerbRollout)
	require.Equal(t, "true\n", a.call(release(one), "", submodules.VerbHealthy, a.name).Stdout)

	// An update sends only what is missing: the archive has no base.
	a.load(two, two.archive(t, d, 2))
	wholes(one, two)
	rollout(two, submodules.VerbRollout)
	rollout(one, submodules.VerbRollback)
	for _, p := range []picture{one, two} {
		a.call(release(p), "", submodules.VerbVerify, a.name)
	}
	a.call(nil, "", submodules.VerbSync, a.name)

	// A delta over what was loaded or pulled in that way.
	path := three.delta(t, d, one)
	a.load(three, path)
	wholes(one, two, three)
	a.call(release(three), "", submodules.VerbVerify, a.name)

	used := map[digest.Digest]bool{}
	for _, c := range a.list(nil) {
		var more struct {
			Size int64
			Used bool
		}
		require.NoError(t, json.Unmarshal(c.AdditionalData, &more))
		require.Greater(t, more.Size, int64(1<<20))
		used[c.Digest] = more.Used
		require.Len(t, c.DiffIDs, len(one.DiffIDs))
	}
	require.Equal(t, map[digest.Digest]bool{one.Digest: true, two.Digest: false, three.Digest: false}, used)

	// What is saved is the image, with the same bytes each time, however it was
	// loaded.
	a.call(release(three), "", submodules.VerbSave, a.name, three.URL, d.Share("three.1"))
	a.call(release(three), "", submodules.VerbSave, a.name, three.URL, d.Share("three.2"))
	three.saved(t, d.Share("three.1"))
	first, err := os.ReadFile(d.Share("three.1"))
	require.NoError(t, err)
	again, err := os.ReadFile(d.Share("three.2"))
	require.NoError(t, err)
	loaded, err := os.ReadFile(three.archive(t, d, 0))
	require.NoError(t, err)
	require.True(t, string(first) == string(again) && string(first) == string(loaded))

	// The base is deleted as an image; its layers stay.
	rollout(two, submodules.VerbRollout)
	a.call(release(one), "", submodules.VerbDelete, one.URL, a.name)
	if base == "pulled" {
		d.MustRun(t, "docker", "rmi", pulled)
	}
	require.NotContains(t, d.MustRun(t, "docker", "images", "--no-trunc"), own(one))
	require.Equal(t, 4, a.try(release(one), "", submodules.VerbSave, a.name, one.URL, d.Share("gone")).Code)
	wholes(two, three)
	a.call(release(two), "", submodules.VerbDelete, two.URL, a.name)
	require.Equal(t, "running", a.container("web", "{{.State.Status}}"), "what is in use stays")
	wholes(two, three)

	// Damage to layers that the images share is found, and repaired with the archive
	// of one of them.
	both := []submodules.Component{two.Component, three.Component}
	hollow(t, d, "base", words(base, baseSize))
	r := a.try(both, "", submodules.VerbVerify, a.name)
	require.Equal(t, 1, r.Code, r.Output())
	require.Contains(t, r.Stdout, two.URL+": layer "+two.DiffIDs[0].String())
	require.Contains(t, r.Stdout, three.URL+": layer "+three.DiffIDs[0].String())
	source, dir := d.Share(base+"-source"), d.Share(base+"-repair")
	require.NoError(t, os.Mkdir(source, 0o755))
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Rename(three.archive(t, d, 0), filepath.Join(source, "three")))
	r = a.call(both, "", submodules.VerbRepair, a.name, dir, source)
	require.Equal(t, a.name+"\n", r.Stdout)
	a.call(both, "", submodules.VerbVerify, a.name)
	wholes(two, three)
	rollout(three, submodules.VerbRollout)

	// Damage to the one remaining image: it is deleted and loaded again, and then
	// whole.
	a.call(release(two), "", submodules.VerbDelete, two.URL, a.name)
	wholes(three)
	hollow(t, d, "last", []byte(mark(three.URL, "3")))
	require.Equal(t, 1, a.try(release(three), "", submodules.VerbVerify, a.name).Code)
	d.MustRun(t, "docker", "rm", "-f", a.name+"-web-1")
	a.call(release(three), "", submodules.VerbDelete, three.URL, a.name)
	a.load(three, three.archive(t, d, 0))
	a.call(release(three), "", submodules.VerbVerify, a.name)
	wholes(three)
	rollout(three, submodules.VerbRollout)

	a.call(nil, "", submodules.VerbPurge, a.name)
	require.Empty(t, a.list(nil))
	require.NotContains(t, d.MustRun(t, "docker", "images"), a.name)
}

// registry runs a registry on the device's loopback, at port 5000.
func registry(t *testing.T, d *bed.Device) {
	t.Helper()
	config := d.Share("registry.yml")
	require.NoError(t, os.WriteFile(config, []byte("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: /tmp/registry}}\nhttp: {addr: \"127.0.0.1:5000\"}\n"), 0o644))
	cmd := d.Command(t.Context(), "docker-registry", "serve", config)
	require.NoError(t, cmd.Start())
	go func() { _ = cmd.Wait() }() // it ends with the device
	bed.Eventually(t, 20*time.Second, "the registry answers", func() bool {
		r, err := d.Run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5000")
		return err == nil && r.Code == 0
	})
}

// hollow empties the file of the engine's unpacked layers that has this name
// and content, as a power cut leaves a file whose blocks were never written.
func hollow(t *testing.T, d *bed.Device, name string, content []byte) {
	t.Helper()
	found := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(d.Dir, "docker"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() != name {
			return nil
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, content) {
			return err
		}
		found++
		return os.Truncate(path, 0)
	}))
	require.Equal(t, 1, found, "files with that content")
}
