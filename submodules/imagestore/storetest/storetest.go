// Package storetest tests that an image store does what imagestore's Load and Repair
// need. It tests present images, loads in every format, old content for deltas,
// verification, repair after each kind of damage, and hostile content. The stores of
// Docker and containerd pass it; any other store must, too.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Fixture holds the store under test and what only its engine knows.
type Fixture struct {
	Store imagestore.RepairStore
	// Apps are the names of two applications of which the store holds nothing. Only
	// images of the suite have these names.
	Apps [2]string
	// Platform is the platform of the images that the suite makes.
	Platform image.Platform
	// Names returns every reference in the store that contains the application's
	// name, with the config digest of its image.
	Names func(t *testing.T, app string) map[string]image.Digest
	// Unpacked returns the directory with the files of an image's layer. It is nil
	// if the tests cannot reach the store's files.
	Unpacked func(t *testing.T, id imagestore.Identity, layer int) string
	// Blob returns the file that holds an image's layer. It is nil for a store that
	// keeps only unpacked layers.
	Blob func(t *testing.T, id imagestore.Identity, layer int) string
	// Classic says that the store is Docker's classic one, which refuses more layers.
	Classic bool
	// Free returns the number of free bytes on the store's disk.
	Free func(t *testing.T) int64
}

// Run runs the suite. open returns a fixture with new names at each call.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"Load", testLoad},
		{"Present", testPresent},
		{"Vanished", testVanished},
		{"Names", testNames},
		{"Refuse", testRefuse},
		{"Manifest", testManifest},
		{"OldContent", testOldContent},
		{"Distrust", testDistrust},
		{"Repair", testRepair},
		{"RepairMissing", testRepairMissing},
		{"Layers", testLayers},
		{"Announced", testAnnounced},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t)
			c.test(&suite{T: t, Fixture: f, app: f.Apps[0], url: f.Apps[0] + ":1"})
		})
	}
}

// suite is one running test.
type suite struct {
	*testing.T
	Fixture
	app, url string
}

// in runs f with the suite as a subtest.
func (s *suite) in(name string, f func(s *suite)) {
	s.Run(name, func(t *testing.T) {
		t.Helper()
		c := *s
		c.T = t
		f(&c)
	})
}

// request returns a LOAD request of an image for the application.
func (s *suite) request(m made) imagestore.LoadRequest {
	return imagestore.LoadRequest{App: s.app, URL: s.url, Want: m.id(), Platform: s.Platform, TempDir: s.TempDir(), Log: s.Logf}
}

func (s *suite) load(q imagestore.LoadRequest, content []byte) error {
	err := imagestore.Load(s.Context(), s.Store, q, bytes.NewReader(content))
	left, derr := os.ReadDir(q.TempDir)
	require.NoError(s, derr)
	require.Empty(s, left, "nothing stays in the temporary directory")
	return err
}

// whole requires that an image is present and undamaged.
func (s *suite) whole(m made) {
	s.Helper()
	img, err := s.Store.Find(s.Context(), s.app, m.id(), s.url)
	require.NoError(s, err)
	require.Equal(s, m.id(), img.Identity)
	require.NoError(s, img.InspectErr)
	bad, err := s.Store.Damages(s.Context(), img)
	require.NoError(s, err)
	require.Empty(s, bad)
}

func (s *suite) absent(m made) {
	s.Helper()
	_, err := s.Store.Find(s.Context(), s.app, m.id(), "")
	require.ErrorIs(s, err, submodules.ErrNotFound)
}

// names returns the references of the application's own images and of its URLs.
func (s *suite) names() map[string]image.Digest { return s.Names(s.T, s.app) }

// unread fails the test if it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the content is read")
	return 0, os.ErrInvalid
}

func testLoad(s *suite) {
	for form, pack := range forms {
		s.in(form, func(s *suite) {
			m := s.image(form, "top "+form)
			require.NoError(s, s.load(s.request(m), pack(s.T, m)))
			s.whole(m)
			require.NoError(s, s.Store.Sync(s.Context()))
			require.Equal(s, m.img.ConfigDigest, s.names()[imagestore.OwnRef(s.app, m.img.ConfigDigest)])
			named, err := s.Store.Named(s.Context(), s.url)
			require.NoError(s, err)
			require.Equal(s, m.id(), named.Identity, "the url has moved")
		})
	}
}

func testPresent(s *suite) {
	m := s.image("a", "top")
	require.NoError(s, s.load(s.request(m), archive(s.T, m)))
	q := s.request(m)
	require.NoError(s, imagestore.Load(s.Context(), s.Store, q, unread{s.T}))
	// Without an identity in the request only the content identifies the image. Load
	// must read it, and does not give it to the store.
	q.Want = imagestore.Identity{}
	require.NoError(s, s.load(q, archive(s.T, m)))
	q = s.request(m)
	q.Platform.Arch = "s390x"
	require.ErrorIs(s, imagestore.Load(s.Context(), s.Store, q, unread{s.T}), submodules.ErrContent)
	present, err := s.Store.Present(s.Context(), m.img.DiffIDs)
	require.NoError(s, err)
	require.Len(s, present, len(m.img.DiffIDs))
	has, err := s.Store.Has(s.Context(), m.id())
	require.NoError(s, err)
	require.True(s, has)

	// A digest in the name of the current image is demanded before anything is read.
	other := s.image("b", "another top")
	q = s.request(other)
	q.Current = s.url + "@" + other.img.ConfigDigest.String()
	err = imagestore.Load(s.Context(), s.Store, q, unread{s.T})
	require.ErrorIs(s, err, submodules.ErrBase)
	require.ErrorContains(s, err, "should be "+other.img.ConfigDigest.String()+", but on this device it is "+m.img.ConfigDigest.String())
	s.absent(other)

	// Another image on the same base needs only its new layers.
	q.Current = s.url + "@" + m.img.ConfigDigest.String()
	require.NoError(s, s.load(q, archive(s.T, other, other.img.DiffIDs[0])))
	s.whole(other)
	s.whole(m)
}

// vanishing is a store in which an image disappears just before it is named for the
// first time. A kubelet removes images that no container uses in the same way.
type vanishing struct {
	imagestore.RepairStore
	names []string
	gone  bool
}

func (v *vanishing) Name(ctx context.Context, img imagestore.Stored, ref, url string) error {
	for _, name := range v.names {
		if v.gone {
			break
		}
		if err := v.Unname(ctx, name); err != nil {
			return err
		}
	}
	v.gone = true
	return v.RepairStore.Name(ctx, img, ref, url)
}

func testVanished(s *suite) {
	m := s.image("a", "top")
	require.NoError(s, s.load(s.request(m), archive(s.T, m)))
	v := &vanishing{RepairStore: s.Store, names: slices.Collect(maps.Keys(s.names()))}
	require.NoError(s, imagestore.Load(s.Context(), v, s.request(m), bytes.NewReader(archive(s.T, m))))
	require.True(s, v.gone)
	s.whole(m)
}

func testNames(s *suite) {
	one, two := s.image("one", "1"), s.image("two", "2")
	require.NoError(s, s.load(s.request(one), archive(s.T, one)))
	before := s.names()

	// Loading a staged image moves no tag.
	q := s.request(two)
	q.Stage = true
	require.NoError(s, s.load(q, archive(s.T, two)))
	own := imagestore.OwnRef(s.app, two.img.ConfigDigest)
	require.Equal(s, two.img.ConfigDigest, s.names()[own])
	named, err := s.Store.Named(s.Context(), s.url)
	require.NoError(s, err)
	require.Equal(s, one.id(), named.Identity)

	require.NoError(s, s.Store.Unname(s.Context(), own))
	require.NoError(s, s.Store.Unname(s.Context(), own), "again is no error")
	require.Equal(s, before, s.names())
	s.absent(two)
	s.whole(one)
	_, err = s.Store.Named(s.Context(), s.app+":none")
	require.ErrorIs(s, err, submodules.ErrNotFound)
}

func testRefuse(s *suite) {
	m, other := s.image("a", "top"), s.image("b", "other")
	require.NoError(s, s.load(s.request(other), archive(s.T, other)))
	before := s.names()
	good := archive(s.T, m)
	flipped := bytes.Clone(good)
	flipped[bytes.Index(good, []byte("top"))] ^= 1
	for title, c := range map[string]struct {
		content []byte
		change  func(q *imagestore.LoadRequest)
	}{
		"empty":         {nil, nil},
		"no archive":    {bytes.Repeat([]byte("nonsense"), 1000), nil},
		"another image": {good, func(q *imagestore.LoadRequest) { q.Want = imagestore.Identity{Config: digest.Of([]byte("x"))} }},
		"other layers":  {good, func(q *imagestore.LoadRequest) { q.Want.DiffIDs = other.img.DiffIDs }},
		"platform":      {good, func(q *imagestore.LoadRequest) { q.Platform.Arch = "s390x" }},
		"cut short":     {good[:len(good)/2], nil},
		"flipped bit":   {flipped, nil},
	} {
		s.in(title, func(s *suite) {
			q := s.request(m)
			if c.change != nil {
				c.change(&q)
			}
			require.ErrorIs(s, s.load(q, c.content), submodules.ErrContent)
			require.Equal(s, before, s.names())
			s.whole(other)
		})
	}
}

func testManifest(s *suite) {
	m := s.image("a", "top")
	content := archive(s.T, m)
	manifest := manifestOf(s.T, content)
	q := s.request(m)
	q.Want = imagestore.Identity{Config: manifest}
	require.NoError(s, s.load(q, content))
	require.Equal(s, m.img.ConfigDigest, s.names()[imagestore.ManifestRef(s.app, manifest)])
	require.NoError(s, imagestore.Load(s.Context(), s.Store, q, unread{s.T}), "it is known by that")
	img, err := s.Store.Find(s.Context(), s.app, q.Want, "")
	require.NoError(s, err)
	require.Equal(s, m.id(), img.Identity)
}

func testOldContent(s *suite) {
	old, next := s.image("old", text(s.app, 100_000)), s.image("new", text(s.app, 50_000)+"changed"+text(s.app, 100_000)[50_007:])
	require.NoError(s, s.load(s.request(old), archive(s.T, old)))
	d := Delta(s.T, old.img, next.img)
	q := s.request(next)
	q.Announced = announced(s.T, next, d)
	q.Stage = true
	require.NoError(s, s.load(q, d))
	s.whole(next)
	s.whole(old)

	// A delta whose base is not present.
	elsewhere := s.image("elsewhere", text(s.app+"elsewhere", 50_000))
	last := s.image("last", text(s.app+"elsewhere", 50_001))
	require.ErrorIs(s, s.load(s.request(last), Delta(s.T, elsewhere.img, last.img)), submodules.ErrBase)
	s.absent(last)
	o, err := s.Store.Old(s.Context(), nil)
	require.NoError(s, err)
	defer o.Close()
	_, _, err = o.Layer(s.Context(), elsewhere.img.DiffIDs[1])
	require.ErrorIs(s, err, delta.ErrNoObject)
}

func testDistrust(s *suite) {
	m := s.image("a", "top")
	q := s.request(m)
	q.Distrust = true
	require.NoError(s, s.load(q, archive(s.T, m)))
	require.NoError(s, imagestore.Load(s.Context(), s.Store, q, unread{s.T}), "it is whole")
	require.NoError(s, os.Truncate(filepath.Join(s.unpacked(m, 1), "top"), 0))
	require.NoError(s, s.load(q, archive(s.T, m)))
	s.whole(m)
}

// unpacked returns the directory of an unpacked layer.
func (s *suite) unpacked(m made, layer int) string {
	s.Helper()
	dir := s.Unpacked(s.T, m.id(), layer)
	if dir == "" {
		s.Skip("the store's files are out of reach")
	}
	return dir
}

// damages returns the ways to damage an image, by their names.
func (s *suite) damages(m made) map[string]func() {
	file := func(f func(path string) error) func() {
		return func() { require.NoError(s, f(filepath.Join(s.unpacked(m, 1), "top"))) }
	}
	ways := map[string]func(){
		"file emptied": file(func(p string) error { return os.Truncate(p, 0) }),
		"file changed": file(func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("x"), len(m.top)), 0o644) }),
		"file lost":    file(os.Remove),
		"shared layer": func() { require.NoError(s, os.Truncate(filepath.Join(s.unpacked(m, 0), "base"), 0)) },
	}
	if s.Blob != nil {
		blob := func(layer int, f func(path string) error) func() {
			return func() { require.NoError(s, f(s.Blob(s.T, m.id(), layer))) }
		}
		ways["blob emptied"] = blob(1, func(p string) error { return os.Truncate(p, 0) })
		ways["blob changed"] = blob(0, spoil)
		ways["blob lost"] = blob(1, os.Remove)
		ways["blob and file"] = func() { ways["blob changed"](); ways["shared layer"]() }
	}
	return ways
}

func spoil(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// repair repairs an image, from an archive of it if from is set.
func (s *suite) repair(m made, from bool) error {
	s.Helper()
	q := imagestore.RepairRequest{App: s.app, Dir: s.TempDir(), Want: []imagestore.Damaged{{URL: s.url, Identity: m.id()}}, Log: s.Logf}
	if from {
		q.Source = s.TempDir()
		require.NoError(s, os.WriteFile(filepath.Join(q.Source, "image"), archive(s.T, m), 0o600))
	}
	apps, err := imagestore.Repair(s.Context(), s.Store, q)
	require.Empty(s, apps, "nothing runs")
	if err != nil {
		left, derr := os.ReadDir(q.Dir)
		require.NoError(s, derr)
		require.Empty(s, left, "a repair that cannot be made keeps nothing")
		return err
	}
	q.Finish = true
	_, err = imagestore.Repair(s.Context(), s.Store, q)
	require.NoError(s, err, "again is no error")
	return nil
}

func testRepair(s *suite) {
	m, other := s.image("a", "top"), s.image("b", "other")
	require.NoError(s, s.load(s.request(other), archive(s.T, other)))
	require.NoError(s, s.load(s.request(m), archive(s.T, m)))
	before := s.names()
	require.NoError(s, s.repair(m, false), "nothing is damaged")
	for title, damage := range s.damages(m) {
		s.in(title, func(s *suite) {
			damage()
			img, err := s.Store.Find(s.Context(), s.app, m.id(), "")
			require.NoError(s, err)
			bad, err := s.Store.Damages(s.Context(), img)
			require.NoError(s, err)
			require.NotEmpty(s, bad)
			// The repair succeeds if the device still has enough intact content.
			// Otherwise it changes nothing, and a repair from an archive succeeds.
			if err := s.repair(m, false); err != nil {
				require.ErrorIs(s, err, submodules.ErrContent)
				require.ErrorContains(s, err, "mender-app verify --repair --from FILE.mender "+s.app)
				now, err := s.Store.Damages(s.Context(), img)
				require.NoError(s, err)
				require.Equal(s, bad, now)
				require.NoError(s, s.repair(m, true))
			}
			s.whole(m)
			s.whole(other)
			require.Equal(s, before, s.names())
		})
	}
}

func testRepairMissing(s *suite) {
	m := s.image("a", "top")
	err := s.repair(m, false)
	require.ErrorIs(s, err, submodules.ErrContent)
	require.ErrorContains(s, err, "nothing was changed")
	require.NoError(s, s.repair(m, true))
	s.whole(m)
	require.Equal(s, m.img.ConfigDigest, s.names()[imagestore.OwnRef(s.app, m.img.ConfigDigest)])
}

// counting is a store that counts the bytes given to it.
type counting struct {
	imagestore.RepairStore
	given int64
}

func (c *counting) Load(ctx context.Context, archive io.Reader) error {
	return c.RepairStore.Load(ctx, io.TeeReader(archive, c))
}

func (c *counting) Write(p []byte) (int, error) {
	c.given += int64(len(p))
	return len(p), nil
}

// unchanged makes a load and requires that the store is given less than 1 MiB, that
// its names stay the same, and that the load does not fill its disk meanwhile.
func (s *suite) unchanged(q imagestore.LoadRequest, content []byte) error {
	s.Helper()
	const most = huge / 2 // others use the disk too
	before, free := s.names(), s.Free(s.T)
	c := &counting{RepairStore: s.Store}
	s.Store = c
	low := lowest(s.T, s.Free)
	err := s.load(q, content)
	require.Less(s, free-low(), int64(most), "the store's disk, on the way")
	require.Less(s, free-s.Free(s.T), int64(most), "the store's disk")
	require.Less(s, c.given, int64(1<<20), "bytes given to the store")
	require.Equal(s, before, s.names(), fmt.Sprintf("references of %s", s.app))
	return err
}
