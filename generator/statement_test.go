package generator

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/generator/inspect"
)

// generated makes an artifact of release 2.0 and returns its path and metadata.
func generated(t *testing.T, s *shop, manifests string, key crypto.Signer, pairs ...string) (string, *artifact.Metadata) {
	t.Helper()
	o := s.options(t, pairs...)
	o.Application.Version, o.Artifact.Signing.Key = "2.0", key
	if manifests != "" {
		o.Application.ManifestsDir = manifests
	}
	if len(pairs) == 3 {
		o.Images.Fallback = true
	}
	_, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	return o.Build.Output, read(t, o.Build.Output).meta
}

// All artifacts of one release carry the same statement, however it travels.
func TestStatementOfARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes several images; left out of -short")
	}
	s := newShop(t)
	manifests := s.manifests(t, "web:2", "side:1")
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	forms := map[string][]string{
		"whole":    {"web:2", "side:1"},
		"delta":    {"side:1,side:1", "web:1,web:2"},
		"variants": {"web:1,web:2", "extra:1,web:2", "side:1"},
	}
	_, whole := generated(t, s, manifests, ed, forms["whole"]...)
	require.Equal(t, artifact.FormatFull, whole.Components[0].Format)
	for name, pairs := range forms {
		path, m := generated(t, s, manifests, ed, pairs...)
		require.Equal(t, string(whole.Statement), string(m.Statement), name)
		signed, err := statement.Parse(m.Statement)
		require.NoError(t, err)
		require.NoError(t, signed.Check(whole))
		require.True(t, signed.SignedBy(ed.Public()))
		require.Equal(t, "2.0", signed.Version)

		d, err := inspect.Artifact(t.Context(), path, []crypto.PublicKey{ed.Public()}, "")
		require.NoError(t, err)
		require.Equal(t, inspect.Verified, d.Statement.Signature)
		require.Equal(t, signed.Statement, d.Statement.Text)

		// An ECDSA signature varies, the text that it signs does not.
		_, m = generated(t, s, manifests, ec, pairs...)
		again, err := statement.Parse(m.Statement)
		require.NoError(t, err)
		require.Equal(t, signed.Statement, again.Statement)
		require.True(t, again.SignedBy(ec.Public()))
	}

	// Other manifests are another release.
	require.NoError(t, os.WriteFile(filepath.Join(manifests, ".env"), []byte("MORE=1\n"), 0o644))
	_, m := generated(t, s, manifests, ed, forms["whole"]...)
	require.NotEqual(t, string(whole.Statement), string(m.Statement))
	// Without a key there is none.
	path, m := generated(t, s, manifests, nil, forms["whole"]...)
	require.Nil(t, m.Statement)
	d, err := inspect.Artifact(t.Context(), path, nil, "")
	require.NoError(t, err)
	require.Nil(t, d.Statement)
}

// rewrite writes an artifact again, signed by nobody, with other metadata or other
// manifests.
func rewrite(t *testing.T, path string, change func(*artifact.Metadata), manifests fstest.MapFS) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := mender.NewReader(f, mender.ReadOptions{})
	require.NoError(t, err)
	h := r.Header()
	m, _, err := artifact.ParseMetadata(h.MetaData)
	require.NoError(t, err)
	spec := mender.Spec{
		Name: h.Name, DeviceTypes: h.DeviceTypes, PayloadType: h.PayloadType,
		Provides: h.Provides, Depends: h.Depends, ClearsProvides: h.ClearsProvides,
	}
	for {
		file, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		if file.Name == artifact.ManifestsPayload && manifests != nil {
			var buf bytes.Buffer
			size, err := artifact.WriteManifests(&buf, manifests)
			require.NoError(t, err)
			m.Sizes.ManifestsPayload, m.Sizes.Manifests = size.Payload, size.Files
			b = buf.Bytes()
		}
		spec.Files = append(spec.Files, mender.File{Name: file.Name, Size: int64(len(b)), Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b)), nil
		}})
	}
	change(m)
	spec.MetaData, err = m.Encode()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, mender.Write(&out, spec, mender.Options{}))
	file := filepath.Join(t.TempDir(), "rewritten.mender")
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
	return file
}

// inspect refuses an artifact that is not what its statement says.
func TestInspectStatement(t *testing.T) {
	s := newShop(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	path, _ := generated(t, s, "", key, "web:2", "side:1")
	_, other := generated(t, s, "", key, "web:1", "side:1")
	for name, c := range map[string]struct {
		change    func(*artifact.Metadata)
		manifests fstest.MapFS
		says      string
	}{
		"other version":     {change: func(m *artifact.Metadata) { m.ApplicationVersion = "3.0" }, says: "version"},
		"of another":        {change: func(m *artifact.Metadata) { m.Statement = other.Statement }, says: "component"},
		"malformed":         {change: func(m *artifact.Metadata) { m.Statement = []byte("{}") }, says: "type"},
		"manifests changed": {change: func(*artifact.Metadata) {}, manifests: fstest.MapFS{"compose.yaml": {Data: []byte("services: {}\n")}}, says: "its manifests are"},
	} {
		_, err := inspect.Artifact(t.Context(), rewrite(t, path, c.change, c.manifests), nil, "")
		require.ErrorIs(t, err, statement.ErrStatement, name)
		require.ErrorContains(t, err, c.says, name)
	}
	d, err := inspect.Artifact(t.Context(), rewrite(t, path, func(*artifact.Metadata) {}, nil), nil, "")
	require.NoError(t, err)
	require.Equal(t, inspect.Unsigned, d.Signature)
	require.Equal(t, inspect.Unverified, d.Statement.Signature)
}
