package composemodule_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/composemodule"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

func TestMetadata(t *testing.T) {
	parse := composemodule.Parser([]image.Platform{{OS: "linux", Arch: "arm", Variant: "v7"}})
	for text, want := range map[string]string{
		`{"version": "1", "project_name": "shop"}`: "shop", `{"version": 1, "project_name": "shop", "more": []}`: "shop",
		`{"version": "2", "project_name": "shop"}`: "", `{"project_name": "shop"}`: "", `{"version": "1"}`: "", `null`: "", `[]`: "",
		`{"version": "1", "project_name": "../shop"}`: "", `{"version": "1", "project_name": "-v"}`: "", `{"version":"1","project_name":"a","project_name":"b"}`: "",
	} {
		m, _, err := parse([]byte(text))
		if want == "" {
			require.ErrorIs(t, err, artifact.ErrMetadata, text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, m.ApplicationName)
		require.Equal(t, "docker-compose", m.Orchestrator)
		require.Equal(t, "linux/arm/v7", m.Platform)
	}
}

// member is a member of an images payload.
type member struct {
	name string
	typ  byte
	data []byte
}

func payload(t *testing.T, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range members {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: m.name, Typeflag: m.typ, Size: int64(len(m.data)), Mode: 0o644, Linkname: ""}))
		_, err := w.Write(m.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

// saved is a docker-archive of an image without layers, and its config's digest.
func saved(t *testing.T, word string, tags ...string) ([]byte, digest.Digest) {
	t.Helper()
	config := []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]},"config":{"Cmd":["` + word + `"]}}`)
	i, err := image.New(config, nil)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, image.WriteArchive(&b, image.ArchiveSpec{Image: i, RepoTags: tags}))
	return b.Bytes(), i.ConfigDigest
}

func TestReadImages(t *testing.T) {
	web, webDigest := saved(t, "web", "shop/web:1", "shop/web:latest")
	stock, stockDigest := saved(t, "stock", "shop/stock:1")
	nameless, _ := saved(t, "nameless")
	dir := t.TempDir()
	var got []composemodule.Image
	read := func(b []byte, room int64) error {
		got = nil
		err := composemodule.ReadImages(bytes.NewReader(b), dir, room, func(i composemodule.Image) error {
			content, err := os.ReadFile(i.Path)
			require.NoError(t, err)
			require.Len(t, content, int(i.Bytes))
			i.Path, i.Bytes = "", 0
			got = append(got, i)
			return nil
		})
		left, lerr := os.ReadDir(dir)
		require.NoError(t, lerr)
		require.Empty(t, left, "nothing is kept")
		return err
	}
	require.NoError(t, read(payload(t, member{"images/", tar.TypeDir, nil}, member{"images/a.tar", tar.TypeReg, web},
		member{"images/b.tar", tar.TypeReg, stock}, member{"images/b again.tar", tar.TypeReg, stock}, member{"images/c.tar", tar.TypeReg, nameless}), 1<<20))
	require.Equal(t, []composemodule.Image{
		{URLs: []string{"shop/web:1", "shop/web:latest"}, Digest: webDigest}, {URLs: []string{"shop/stock:1"}, Digest: stockDigest},
	}, got)

	ours, _ := saved(t, "x", "mender-app.local/shop:1")
	for name, b := range map[string][]byte{
		"not below images": payload(t, member{"a.tar", tar.TypeReg, web}), "too deep": payload(t, member{"images/a/b.tar", tar.TypeReg, web}),
		"a link":          payload(t, member{"images/a.tar", tar.TypeSymlink, nil}),
		"not an archive":  payload(t, member{"images/a.tar", tar.TypeReg, []byte("hello")}),
		"a device's name": payload(t, member{"images/a.tar", tar.TypeReg, ours}),
		"cut short":       payload(t, member{"images/a.tar", tar.TypeReg, web[:len(web)/2]}),
	} {
		require.ErrorIs(t, read(b, 1<<20), artifact.ErrPayload, name)
	}
	require.ErrorIs(t, read(payload(t, member{"images/a.tar", tar.TypeReg, web}), 100), artifact.ErrSpool)
}
