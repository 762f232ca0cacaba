package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

func newStore(t *testing.T) *store.Store {
	t.Helper()
	s := store.At(filepath.Join(t.TempDir(), "store"))
	require.NoError(t, s.Prepare())
	return s
}

func putRelease(t *testing.T, a *store.App, name string) string {
	t.Helper()
	id := a.NextID(name)
	require.NoError(t, a.PutRelease(&store.Release{ID: id, Orchestrator: "o", ArtifactName: name, Complete: true}))
	require.NoError(t, os.WriteFile(filepath.Join(a.ReleaseManifests(id), "compose.yaml"), []byte(name), 0o644))
	require.NoError(t, a.SyncRelease(id))
	return id
}

func TestRoundTrip(t *testing.T) {
	s := newStore(t)
	_, err := s.App("web")
	require.ErrorIs(t, err, store.ErrNoApp)
	a, err := s.Create("web")
	require.NoError(t, err)
	one := putRelease(t, a, "rel one/../2")
	require.Equal(t, "1-rel-one-..-2", one)
	a.Current = one
	require.NoError(t, a.Point(one))
	require.NoError(t, a.Save())

	b, err := s.App("web")
	require.NoError(t, err)
	require.Equal(t, one, b.Current)
	require.Equal(t, one, b.Pointed())
	data, err := os.ReadFile(filepath.Join(b.ManifestsDir(), "compose.yaml"))
	require.NoError(t, err)
	require.Equal(t, "rel one/../2", string(data))
	require.Equal(t, "2-v2", b.NextID("v2"))

	names, err := s.Apps()
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, names)
}

func TestUnknownFieldsSurvive(t *testing.T) {
	s := newStore(t)
	a, err := s.Create("web")
	require.NoError(t, err)
	id := putRelease(t, a, "v1")
	a.Deployment = &store.Deployment{ID: "1", To: id, Phase: "loaded"}
	require.NoError(t, a.Save())

	for path, object := range map[string]string{
		filepath.Join(a.Dir(), "app.json"):                     "deployment",
		filepath.Join(a.Dir(), "releases", id, "release.json"): "",
	} {
		var doc map[string]any
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &doc))
		doc["from_the_future"] = []any{"x"}
		if object != "" {
			doc[object].(map[string]any)["also"] = "y"
		}
		data, err = json.Marshal(doc)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}

	a, err = s.App("web")
	require.NoError(t, err)
	a.Deployment.Phase = "installing"
	require.NoError(t, a.Save())
	r, err := a.Release(id)
	require.NoError(t, err)
	r.Version = "2"
	require.NoError(t, a.PutRelease(r))

	data, err := os.ReadFile(filepath.Join(a.Dir(), "app.json"))
	require.NoError(t, err)
	require.Contains(t, string(data), `"from_the_future"`)
	require.Contains(t, string(data), `"also"`)
	require.Contains(t, string(data), `"installing"`)
	data, err = os.ReadFile(filepath.Join(a.Dir(), "releases", id, "release.json"))
	require.NoError(t, err)
	require.Contains(t, string(data), `"from_the_future"`)
}

func TestNewerFormatIsRefused(t *testing.T) {
	s := newStore(t)
	require.NoError(t, os.MkdirAll(filepath.Join(s.Dir(), "web"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "web", "app.json"), []byte(`{"format":2}`), 0o644))
	_, err := s.App("web")
	require.ErrorIs(t, err, store.ErrNewer)
}

func TestHostileState(t *testing.T) {
	s := newStore(t)
	path := filepath.Join(s.Dir(), "web", "app.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	for _, doc := range []string{
		`{"format":1,"current":"../../x"}`, `{"format":1,"kept":["a/b"]}`,
		`{"format":1,"deployment":{"to":""}}`, `{"format":1,"deployment":{"to":".."}}`, `[]`, `{`, ``, `null x`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(doc), 0o644))
		_, err := s.App("web")
		var corrupt *store.CorruptError
		require.ErrorAs(t, err, &corrupt, doc)
	}
}

func TestRescue(t *testing.T) {
	for _, damage := range []string{"damaged", "gone"} {
		for _, copied := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, with a copy: %v", damage, copied), func(t *testing.T) {
				s := newStore(t)
				a, err := s.Create("web")
				require.NoError(t, err)
				one := putRelease(t, a, "v1")
				two := putRelease(t, a, "v2")
				a.Current, a.Kept, a.Stopped = two, []string{one}, true
				require.NoError(t, a.Point(two))
				require.NoError(t, a.Save())
				path := filepath.Join(a.Dir(), "app.json")
				if damage == "gone" {
					require.NoError(t, os.Remove(path))
				} else {
					require.NoError(t, os.WriteFile(path, []byte("\x00\x00"), 0o644))
				}
				if !copied {
					require.NoError(t, os.Remove(path+".copy"))
				}

				_, err = s.App("web")
				var corrupt *store.CorruptError
				require.ErrorAs(t, err, &corrupt)
				apps, err := s.Apps()
				require.NoError(t, err)
				require.Equal(t, []string{"web"}, apps)
				if damage == "damaged" {
					require.FileExists(t, path, "reading moves nothing")
				}

				b, lines, err := s.Rescue("web")
				require.NoError(t, err)
				require.NotEmpty(t, lines)
				require.Equal(t, two, b.Current)
				require.Equal(t, []string{one}, b.Kept)
				require.Equal(t, copied, b.Stopped)
				require.Equal(t, "3-x", b.NextID("x"))
				if damage == "damaged" {
					kept, err := os.ReadFile(path + ".corrupt-1")
					require.NoError(t, err)
					require.Equal(t, "\x00\x00", string(kept))
				}
				again, err := s.App("web")
				require.NoError(t, err)
				require.Equal(t, two, again.Current)
			})
		}
	}
}

func TestRescueInterrupted(t *testing.T) {
	s := newStore(t)
	a, err := s.Create("web")
	require.NoError(t, err)
	require.NoError(t, a.Save())
	path := filepath.Join(a.Dir(), "app.json")
	require.NoError(t, os.Rename(path, path+".corrupt-1"))
	_, err = s.App("web")
	var corrupt *store.CorruptError
	require.ErrorAs(t, err, &corrupt, "a file kept aside is not the same as no application")
	_, _, err = s.Rescue("web")
	require.NoError(t, err)
	_, err = s.App("web")
	require.NoError(t, err)
}

func TestLock(t *testing.T) {
	s := newStore(t)
	release, err := s.Lock(context.Background(), "ArtifactInstall")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Lock(ctx, "Download")
	var locked *store.LockedError
	require.ErrorAs(t, err, &locked)
	require.Contains(t, err.Error(), fmt.Sprintf("process %d, ArtifactInstall", os.Getpid()))
	release()
	release, err = s.Lock(ctx, "Download")
	require.NoError(t, err)
	release()
}

func TestHistory(t *testing.T) {
	s := newStore(t)
	for i := range 250 {
		require.NoError(t, s.AddHistory(store.Record{ID: fmt.Sprint(i), Application: "web", Status: store.StatusInstalled, Started: time.Unix(int64(i), 0).UTC()}))
	}
	require.NoError(t, s.AddHistory(store.Record{ID: "249", Application: "web", Status: store.StatusFailed, Started: time.Unix(249, 0)}))
	got, err := s.History("web")
	require.NoError(t, err)
	require.Len(t, got, 200)
	require.Equal(t, "50", got[0].ID)
	require.Equal(t, store.StatusFailed, got[199].Status, "the same deployment is not recorded twice")
	last, found, err := s.Last("web")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, got[199], last)
	_, found, err = s.Last("none")
	require.NoError(t, err)
	require.False(t, found)

	path := s.Meta("history/web.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{}\n{tor"), 0o644))
	_, _, err = s.Last("web")
	require.ErrorAs(t, err, new(*store.CorruptError))
	require.NoError(t, s.AddHistory(store.Record{ID: "300", Application: "web"}))
	require.FileExists(t, path+".corrupt-1")
	got, err = s.History("web")
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func legacy(t *testing.T, s *store.Store, name string) {
	t.Helper()
	dir := filepath.Join(s.Dir(), name)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "manifests", "conf"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "images"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifests", "docker-compose.yml"), []byte("services: {}"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifests", "conf", "x"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "images", "urls"), []byte("web:1\nside:1\nweb:1\n"), 0o644))
	for _, suffix := range []string{"-last", "-previous"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir+suffix, "manifests"), 0o755))
	}
}

func adopt(s *store.Store) (*store.App, error) {
	return s.Adopt("web", "docker-compose", func(urls []string) (c []store.Component) {
		for _, url := range urls {
			c = append(c, store.Component{Type: "image", URL: url})
		}
		return c
	})
}

func checkAdopted(t *testing.T, s *store.Store, a *store.App) {
	t.Helper()
	require.Equal(t, store.AdoptedID, a.Current)
	require.Equal(t, store.AdoptedID, a.Pointed())
	r, err := a.Release(a.Current)
	require.NoError(t, err)
	require.True(t, r.Adopted)
	require.Len(t, r.Components, 2)
	// What the reference would read is still there.
	for _, file := range []string{"manifests/docker-compose.yml", "manifests/conf/x", "images/urls"} {
		require.FileExists(t, filepath.Join(s.Dir(), "web", file))
	}
}

func TestAdopt(t *testing.T) {
	s := newStore(t)
	legacy(t, s, "web")
	names, err := s.Apps()
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, names)
	_, err = s.App("web")
	require.ErrorIs(t, err, store.ErrNoApp)
	require.True(t, s.Legacy("web"))

	before, err := os.Stat(filepath.Join(s.Dir(), "web/manifests/conf/x"))
	require.NoError(t, err)
	a, err := adopt(s)
	require.NoError(t, err)
	checkAdopted(t, s, a)
	after, err := os.Stat(filepath.Join(s.Dir(), "web/manifests/conf/x"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "what a container has mounted stays the file in the release")

	require.False(t, s.Legacy("web"))
	require.NoError(t, a.DropLegacy())
	require.NoError(t, a.DropLegacy())
	for _, gone := range []string{"web-last", "web-previous", "web/images"} {
		require.NoFileExists(t, filepath.Join(s.Dir(), gone))
		require.NoDirExists(t, filepath.Join(s.Dir(), gone))
	}
}

func TestAdoptInterruptedReference(t *testing.T) {
	s := newStore(t)
	legacy(t, s, "web")
	// The reference was killed in LOAD: its new directory has no manifests.
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir(), "web/manifests")))
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "web-previous/manifests/docker-compose.yml"), []byte("old"), 0o644))
	a, err := adopt(s)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(a.ManifestsDir(), "docker-compose.yml"))
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
}

// TestAdoptStopsAnywhere fails each step of an adoption in turn; what is left
// is the reference's application or the adopted one, and a repetition works.
func TestAdoptStopsAnywhere(t *testing.T) {
	adoptStopped(t, func(t *testing.T) (*store.Store, string) {
		s := newStore(t)
		legacy(t, s, "web")
		return s, filepath.Join(s.Dir(), "web/manifests/docker-compose.yml")
	}, func(t *testing.T, s *store.Store, a *store.App) { checkAdopted(t, s, a) })
}

// adoptStopped fails each step of an adoption in turn. begin makes a store, and returns
// a file of the application that stays; check is for the adopted application.
func adoptStopped(t *testing.T, begin func(*testing.T) (s *store.Store, file string), check func(*testing.T, *store.Store, *store.App)) {
	t.Helper()
	stopped := errors.New("stopped")
	for n := 1; ; n++ {
		s, file := begin(t)
		count, dead := 0, false
		restore := durable.Inject(func(string) error {
			count++
			if dead = dead || count == n; dead {
				return stopped
			}
			return nil
		})
		_, err := adopt(s)
		restore()
		if !dead {
			require.NoError(t, err)
			require.Greater(t, n, 10)
			return
		}
		require.ErrorIs(t, err, stopped)
		require.FileExists(t, file, "step %d", n)
		a, err := s.App("web")
		if err != nil {
			require.True(t, s.Legacy("web"), "step %d", n)
			a, err = adopt(s)
			require.NoError(t, err)
		}
		require.NoError(t, a.Sweep())
		require.NoError(t, a.Point(a.Current))
		check(t, s, a)
	}
}
