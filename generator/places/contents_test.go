package places

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/places/placestest"
)

// Each kind of place keeps content and notes, over connections that are cut too, and its
// releases stay what they are.
func TestContents(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 5<<16) // 5 MiB
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			c, err := OpenContents(open(t))
			require.NoError(t, err)
			require.Equal(t, name == "registry", c.Source() != "")
			require.Equal(t, name == "directory", c.Directory() != "")
			ctx := context.Background()
			of := func(text string) artifact.Content {
				return artifact.Content{Digest: digest.Of([]byte(text)), Size: int64(len(text))}
			}
			one, two := of("one"), of(large)
			require.ErrorIs(t, c.Has(ctx, one), fs.ErrNotExist)
			require.ErrorIs(t, c.Compare(ctx, one), fs.ErrNotExist)
			_, err = c.Note(ctx, "key")
			require.ErrorIs(t, err, fs.ErrNotExist)

			for text, content := range map[string]artifact.Content{"one": one, large: two} {
				there, err := c.Add(ctx, content, file(t, text))
				require.NoError(t, err)
				require.False(t, there)
				there, err = c.Add(ctx, content, file(t, text))
				require.NoError(t, err)
				require.True(t, there)
				require.NoError(t, c.Has(ctx, content))
				require.NoError(t, c.Compare(ctx, content))
				f, err := os.CreateTemp(t.TempDir(), "")
				require.NoError(t, err)
				require.NoError(t, c.Download(ctx, content, f))
				got, err := os.ReadFile(f.Name())
				require.NoError(t, err)
				require.True(t, string(got) == text)
				require.NoError(t, f.Close())
			}
			require.ErrorIs(t, c.Has(ctx, artifact.Content{Digest: one.Digest, Size: 4}), artifact.ErrOtherContent)

			for _, text := range []string{"a note", "another"} {
				require.NoError(t, c.SetNote(ctx, "key", []byte(text), []artifact.Content{one, two, one}))
				got, err := c.Note(ctx, "key")
				require.NoError(t, err)
				require.Equal(t, text, string(got))
			}
			require.NoError(t, c.Keep(ctx, "shop-2", []artifact.Content{one, two}, nil))
			require.NoError(t, c.Keep(ctx, "shop-2", nil, nil))
			require.Error(t, c.SetNote(ctx, "key", make([]byte, maxNote+1), nil))

			_, err = Put(ctx, c.Place, "shop-2.mender", file(t, "artifact"), nothing)
			require.NoError(t, err)
			list, err := Releases(ctx, c.Place)
			require.NoError(t, err)
			require.Equal(t, []string{"shop-2.mender"}, list)
		})
	}
}

// Content that is damaged in a directory is written again, and so is what has another size
// elsewhere. What is not a file is not waited for.
func TestDamagedContents(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenContents(dir)
	require.NoError(t, err)
	ctx := context.Background()
	content := artifact.Content{Digest: digest.Of([]byte("one")), Size: 3}
	path := filepath.Join(dir, content.Digest.Hex())
	require.NoError(t, os.WriteFile(path, []byte("two"), 0o600))
	require.NoError(t, c.Has(ctx, content))
	require.ErrorIs(t, c.Compare(ctx, content), artifact.ErrOtherContent)
	there, err := c.Add(ctx, content, file(t, "one"))
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, c.Compare(ctx, content))

	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	require.ErrorIs(t, c.Has(ctx, content), artifact.ErrOtherContent)
	require.Error(t, c.Compare(ctx, content))

	for k, v := range placestest.S3(t, "builds", nil) {
		t.Setenv(k, v)
	}
	b, err := OpenContents("s3://builds")
	require.NoError(t, err)
	_, err = Put(ctx, b.Place, content.Digest.Hex(), file(t, "longer"), nothing)
	require.NoError(t, err)
	there, err = b.Add(ctx, content, file(t, "one"))
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, b.Compare(ctx, content))
}

// Content in the repository of its image refers to it, whatever else the tag stands for.
func TestContentRefersToItsImage(t *testing.T) {
	host := gentest.Registry(t, "", "")
	img := gentest.Image(t, "linux/arm64", gentest.Files{"app": "two"})
	gentest.Push(t, host+"/shop/web:2", img, "", "")
	gentest.Push(t, host+"/shop/web:moved", gentest.Image(t, "linux/arm64", gentest.Files{"app": "three"}), "", "")
	gentest.Push(t, host+"/shop/web:all", gentest.Index(t, gentest.Image(t, "linux/amd64", gentest.Files{"app": "amd64"}), img), "", "")
	of := func(url string) ImageName {
		return ImageName{URL: url, Config: digest.Digest(gentest.Digest(t, img)), Platform: "linux/arm64"}
	}
	want, err := img.Digest()
	require.NoError(t, err)
	place, err := OpenContents("oci:" + host + "/shop/web")
	require.NoError(t, err)
	content := artifact.Content{Digest: digest.Of([]byte("one")), Size: 3}
	_, err = place.Add(t.Context(), content, file(t, "one"))
	require.NoError(t, err)
	for about, c := range map[string]struct {
		images  []ImageName
		subject bool
	}{
		"none":             {nil, false},
		"elsewhere":        {[]ImageName{of("registry.invalid/shop/web:2"), of(host + "/shop/db:2"), of("not a name")}, false},
		"gone":             {[]ImageName{of(host + "/shop/web:1")}, false},
		"moved":            {[]ImageName{of(host + "/shop/web:moved")}, false},
		"there":            {[]ImageName{of(host + "/shop/db:2"), of(host + "/shop/web:2")}, true},
		"of its platforms": {[]ImageName{of(host + "/shop/web:all")}, true},
	} {
		require.NoError(t, place.Keep(t.Context(), "shop-2", []artifact.Content{content}, c.images), about)
		ref, err := name.ParseReference(host + "/shop/web:shop-2.content")
		require.NoError(t, err)
		kept, err := remote.Image(ref)
		require.NoError(t, err)
		m, err := kept.Manifest()
		require.NoError(t, err)
		if !c.subject {
			require.Nil(t, m.Subject, about)
			continue
		}
		require.Equal(t, want, m.Subject.Digest, about)
	}
	at, err := name.NewDigest(host + "/shop/web@" + want.String())
	require.NoError(t, err)
	referrers, err := remote.Referrers(at)
	require.NoError(t, err)
	list, err := referrers.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 1)
	names, err := Releases(t.Context(), place.Place)
	require.NoError(t, err)
	require.NotContains(t, strings.Join(names, " "), "sha256-", "the registry's list of referrers is no release")
}
