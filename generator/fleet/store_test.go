package fleet

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
)

// TestFullRegistry: a registry whose disk is full says so, and has no record of the delta.
// With room again the delta is kept, by several at once too.
func TestFullRegistry(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for what a client tries again")
	}
	t.Parallel()
	var full atomic.Bool
	var refused atomic.Int64
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if full.Load() && r.Method != http.MethodGet && r.Method != http.MethodHead {
			refused.Add(1) // as distribution answers
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"Err":28,"Op":"mkdir"}},{"code":"UNKNOWN","message":"no space left on device"}]}`)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	open := func() *Store {
		s, err := OpenStore("oci:" + strings.TrimPrefix(server.URL, "http://") + "/shop/fleet")
		require.NoError(t, err)
		return s
	}
	delta := []byte("a delta")
	file := filepath.Join(t.TempDir(), "delta")
	require.NoError(t, os.WriteFile(file, delta, 0o600))
	old := digest.Of([]byte("old"))
	m := &Made{
		Key: Key{From: Component{URL: "shop:1", Digest: old}, To: Component{URL: "shop:2", Digest: digest.Of([]byte("new"))}, Platform: "linux/amd64", Options: "standard", Format: 1},
		Variant: artifact.Variant{
			Format: artifact.FormatDelta, Bases: []artifact.Base{{URL: "shop:1", Digest: old}}, Layers: []artifact.VariantLayer{{Encoding: artifact.EncodingDelta, Bytes: 1}},
			PayloadBytes: 2, Content: &artifact.Content{Digest: digest.Of(delta), Size: int64(len(delta))},
		},
	}
	full.Store(true)
	require.ErrorContains(t, open().keep(t.Context(), m, file), "no space left on device")
	require.Positive(t, refused.Load())
	found, err := open().Find(t.Context(), m.Key)
	require.NoError(t, err)
	require.Nil(t, found)

	full.Store(false)
	var writers sync.WaitGroup
	failed := make([]error, 4)
	for i := range failed {
		writers.Go(func() { failed[i] = open().keep(t.Context(), m, file) })
	}
	writers.Wait()
	require.NoError(t, errors.Join(failed...))
	s := open()
	found, err = s.Find(t.Context(), m.Key)
	require.NoError(t, err)
	require.Equal(t, m, found)
	require.NoError(t, s.Verify(t.Context(), found))

	// A file that is gone is not a delta, whatever the record says.
	m.Variant.Content = &artifact.Content{Digest: digest.Of([]byte("gone")), Size: 4}
	require.ErrorIs(t, s.Verify(t.Context(), m), fs.ErrNotExist)
}

// What anybody wrote into a store is not made part of a release: a record must be about a
// delta of its key, and one that is about something else counts as missing.
func TestForgedRecords(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(dir)
	require.NoError(t, err)
	delta := []byte("a delta")
	old, other := digest.Of([]byte("old")), digest.Of([]byte("other"))
	key := Key{From: Component{URL: "shop:1", Digest: old}, To: Component{URL: "shop:2", Digest: digest.Of([]byte("new"))}, Platform: "linux/amd64", Options: "standard", Format: 1}
	require.NoError(t, os.WriteFile(filepath.Join(dir, digest.Of(delta).Hex()), delta, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "made"), 0o755))
	find := func(change func(*Made)) *Made {
		t.Helper()
		m := &Made{Key: key, Variant: artifact.Variant{
			Format: artifact.FormatDelta, Bases: []artifact.Base{{URL: "shop:1", Digest: old}}, Layers: []artifact.VariantLayer{{Encoding: artifact.EncodingDelta, Bytes: 1}},
			PayloadBytes: 2, Temp: 3, Memory: 4, Engine: 5, Content: &artifact.Content{Digest: digest.Of(delta), Size: int64(len(delta))},
		}}
		change(m)
		text, err := json.Marshal(m)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "made", key.Hex()+".json"), text, 0o644))
		clear(s.found)
		m, err = s.Find(t.Context(), key)
		require.NoError(t, err)
		return m
	}
	require.NotNil(t, find(func(*Made) {}))
	for name, change := range map[string]func(*Made){
		"another key":      func(m *Made) { m.Key.To.URL = "shop:3" },
		"no content":       func(m *Made) { m.Variant.Content = nil },
		"content is gone":  func(m *Made) { m.Variant.Content.Digest = other },
		"another size":     func(m *Made) { m.Variant.Content.Size++ },
		"a whole image":    func(m *Made) { m.Variant.Format, m.Variant.Bases = artifact.FormatFull, nil },
		"no base":          func(m *Made) { m.Variant.Bases = nil },
		"another base":     func(m *Made) { m.Variant.Bases[0].Digest = other },
		"a base's name":    func(m *Made) { m.Variant.Bases[0].URL = "kiosk:1" },
		"one base more":    func(m *Made) { m.Variant.Bases = append(m.Variant.Bases, artifact.Base{URL: "kiosk:1", Digest: other}) },
		"layers of a base": func(m *Made) { m.Variant.Bases[0].DiffIDs = []digest.Digest{other} },
		"shared content":   func(m *Made) { m.Variant.Shared = true },
		"negative numbers": func(m *Made) { m.Variant.Memory = -1 },
	} {
		require.Nil(t, find(change), name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "made", key.Hex()+".json"), []byte("{"), 0o644))
	m, err := s.Find(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, m)
	require.NoError(t, os.Truncate(filepath.Join(dir, "made", key.Hex()+".json"), 2<<20))
	_, err = s.Find(t.Context(), key)
	require.ErrorContains(t, err, "has more than")

	// What is in the file is compared before it is published.
	good := find(func(*Made) {})
	require.NoError(t, s.Verify(t.Context(), good))
	require.NoError(t, os.WriteFile(filepath.Join(dir, digest.Of(delta).Hex()), []byte("A delta"), 0o644))
	require.ErrorIs(t, s.Verify(t.Context(), good), artifact.ErrOtherContent)
}
