package places

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
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
			require.NoError(t, c.Keep(ctx, "shop-2", []artifact.Content{one, two}))
			require.NoError(t, c.Keep(ctx, "shop-2", nil))
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
// elsewhere. What is no file is not waited for.
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
