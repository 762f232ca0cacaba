package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store"
)

func TestSuspects(t *testing.T) {
	s := newStore(t)
	require.NoError(t, s.Prepare())
	path := s.Meta("suspects.json")
	one := store.Suspect{BootID: "b1", Orchestrator: "o", Digests: []digest.Digest{"sha256:1"}, Layers: []digest.Digest{"sha256:2"}}
	require.NoError(t, s.PutSuspects([]store.Suspect{one, {BootID: "b2"}}))
	list, err := s.Suspects()
	require.NoError(t, err)
	require.Len(t, list, 1, "one without anything is none")
	require.Equal(t, one.Digests, list[0].Digests)
	require.Equal(t, one.Layers, list[0].Layers)
	require.Equal(t, one.BootID, list[0].BootID)

	// What a later version writes survives this one.
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(data, &doc))
	doc["later"] = 1
	doc["suspects"].([]any)[0].(map[string]any)["also"] = 2
	data, err = json.Marshal(doc)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	list, err = s.Suspects()
	require.NoError(t, err)
	require.NoError(t, s.PutSuspects(append(list, store.Suspect{BootID: "b3", Layers: []digest.Digest{"sha256:3"}})))
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), `"later"`)
	require.Contains(t, string(data), `"also"`)

	var many []store.Suspect
	for range 200 {
		many = append(many, one)
	}
	require.NoError(t, s.PutSuspects(many))
	list, err = s.Suspects()
	require.NoError(t, err)
	require.Len(t, list, 100)
	require.NoError(t, s.PutSuspects(nil))
	require.NoFileExists(t, path)

	require.NoError(t, os.WriteFile(path, []byte(`{"format":2}`), 0o644))
	_, err = s.Suspects()
	require.ErrorIs(t, err, store.ErrNewer)
}

// beforeSuspects is what a version knew that had no boot_id in a release, no
// suspects and no repairs.
type beforeSuspects struct {
	Format   int    `json:"format"`
	ID       string `json:"id"`
	Complete bool   `json:"complete,omitempty"`
}

// TestVersionBefore: the version before reads a store of this one as its own,
// until the commit and after: format 1, the same files, and what it does not
// know is beside them.
func TestVersionBefore(t *testing.T) {
	s := newStore(t)
	require.NoError(t, s.Prepare())
	a, err := s.Create("web")
	require.NoError(t, err)
	id := putRelease(t, a, "v1")
	require.NoError(t, a.Save())
	r, err := a.Release(id)
	require.NoError(t, err)
	r.BootID = "b1"
	require.NoError(t, a.PutRelease(r))
	require.NoError(t, s.PutSuspects([]store.Suspect{{BootID: "b1", Digests: []digest.Digest{"sha256:1"}}}))
	require.NoError(t, os.MkdirAll(s.Meta("repair/web"), 0o755))

	names, err := s.Apps()
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, names, "what is new is no application")
	data, err := os.ReadFile(filepath.Join(a.Dir(), "releases", id, "release.json"))
	require.NoError(t, err)
	var old beforeSuspects
	require.NoError(t, json.Unmarshal(data, &old))
	require.Equal(t, beforeSuspects{Format: 1, ID: id, Complete: r.Complete}, old)
	// And a store of the version before is one of this.
	var doc map[string]any
	require.NoError(t, json.Unmarshal(data, &doc))
	delete(doc, "boot_id")
	data, err = json.Marshal(doc)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir(), "releases", id, "release.json"), data, 0o644))
	require.NoError(t, s.PutSuspects(nil))
	again, err := a.Release(id)
	require.NoError(t, err)
	require.Empty(t, again.BootID)
	require.Equal(t, r.Components, again.Components)
}

// TestForgetKeepsDirectories: data in directories that no release brings stays.
func TestForgetKeepsDirectories(t *testing.T) {
	s := newStore(t)
	a, err := s.Create("web")
	require.NoError(t, err)
	require.NoError(t, a.Save())
	file := filepath.Join(a.Dir(), store.DataName, "visits", "number")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.NoError(t, a.Forget())
	require.FileExists(t, file)
	names, err := s.Apps()
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestForgetKeepsTheNoteOfVolumes: a sub-module finds volumes without a name by it.
func TestForgetKeepsTheNoteOfVolumes(t *testing.T) {
	s := newStore(t)
	a, err := s.Create("web")
	require.NoError(t, err)
	require.NoError(t, a.Save())
	note := filepath.Join(a.Dir(), "volumes-unnamed.json")
	require.NoError(t, os.WriteFile(note, []byte("[]"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir(), "ended"), nil, 0o600))
	require.NoError(t, a.Forget())
	left, err := os.ReadDir(a.Dir())
	require.NoError(t, err)
	require.Len(t, left, 1)
	names, err := s.Apps()
	require.NoError(t, err)
	require.Empty(t, names)
	dirs, err := s.Private()
	require.NoError(t, err)
	require.Contains(t, dirs, a.Dir(), "it is still one of an application")
}

// TestForgetKeepsData: what a service has written into its mounts stays.
func TestForgetKeepsData(t *testing.T) {
	s := newStore(t)
	a, err := s.Create("web")
	require.NoError(t, err)
	putRelease(t, a, "v1")
	require.NoError(t, a.Save())
	require.NoError(t, os.Mkdir(filepath.Join(a.Dir(), "mounts"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(a.Dir(), "mounts", "data"), nil, 0o644))
	require.NoError(t, a.Forget())
	entries, err := os.ReadDir(a.Dir())
	require.NoError(t, err)
	require.Len(t, entries, 1)
	names, err := s.Apps()
	require.NoError(t, err)
	require.Empty(t, names)
	require.NoError(t, os.Remove(filepath.Join(a.Dir(), "mounts", "data")))
	a, err = s.Create("web")
	require.NoError(t, err)
	require.NoError(t, a.Save())
	require.NoError(t, a.Forget())
	require.NoDirExists(t, a.Dir())
}
