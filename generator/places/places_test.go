package places

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/places/placestest"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func nothing(int64) {}

// cut makes a server that ends its first answers to GET, of a file, in their middle.
func cut(after int) func(http.Handler) http.Handler {
	var left atomic.Int64
	left.Store(2)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			for name, values := range rec.Header() {
				w.Header()[name] = values
			}
			body := rec.Body.Bytes()
			if r.Method == http.MethodGet && len(body) > after && left.Add(-1) >= 0 {
				w.WriteHeader(rec.Code)
				_, _ = w.Write(body[:after])
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(body)
		})
	}
}

// kinds make a place of each kind, and return the text that names it. Connections to some
// of them are cut.
var kinds = map[string]func(t *testing.T) string{
	"directory": func(t *testing.T) string { return filepath.Join(t.TempDir(), "not/there/yet") },
	"web": func(t *testing.T) string {
		t.Setenv(HeaderVariable, "JOB-TOKEN: secret")
		return placestest.Web(t, "secret").URL + "/generic/shop"
	},
	"bucket": func(t *testing.T) string {
		for k, v := range placestest.S3(t, "builds", cut(1<<20)) {
			t.Setenv(k, v)
		}
		return "s3://builds/shop/releases"
	},
	"registry": func(t *testing.T) string {
		return "oci:" + gentest.Serve(t, "", "", cut(1<<20)) + "/releases/shop"
	},
}

// Each kind of place does what Place says, with small and large files, and
// over connections that are cut.
func TestPlaces(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 20<<16) // 20 MiB
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			text := open(t)
			require.Equal(t, name != "directory", Remote(text))
			p, err := Open(text)
			require.NoError(t, err)
			require.Equal(t, text, p.String())
			ctx := context.Background()
			list, err := Releases(ctx, p)
			require.NoError(t, err)
			require.Empty(t, list)
			_, err = p.Open(ctx, "shop-1.mender")
			require.ErrorIs(t, err, fs.ErrNotExist)

			want := map[string]string{"shop-1.mender": "one", "shop-1.2_a.mender": " ", "shop-2.mender": large}
			for name, content := range want {
				var sent int64
				there, err := Put(ctx, p, name, file(t, content), func(n int64) { sent = n })
				require.NoError(t, err)
				require.False(t, there)
				require.EqualValues(t, len(content), sent)
			}
			list, err = Releases(ctx, p)
			require.NoError(t, err)
			slices.Sort(list)
			require.Equal(t, []string{"shop-1.2_a.mender", "shop-1.mender", "shop-2.mender"}, list)
			for name, content := range want {
				to := filepath.Join(t.TempDir(), "got")
				var got int64
				require.NoError(t, Download(ctx, p, name, to, func(n int64) { got = n }))
				b, err := os.ReadFile(to)
				require.NoError(t, err)
				require.True(t, string(b) == content, "%s: %d bytes %.100q", name, len(b), b)
				require.EqualValues(t, len(content), got)
			}

			for _, content := range []string{"other", "one, and more", "on", ""} {
				_, err = Put(ctx, p, "shop-1.mender", file(t, content), nothing)
				var refused *Error
				require.ErrorAs(t, err, &refused)
				require.Contains(t, err.Error(), "has another shop-1.mender")
			}
			for name, content := range want {
				there, err := Put(ctx, p, name, file(t, content), nothing)
				require.NoError(t, err)
				require.True(t, there)
			}
			body, err := p.Open(ctx, "shop-1.mender")
			require.NoError(t, err)
			b, err := io.ReadAll(body)
			require.NoError(t, err)
			require.NoError(t, body.Close())
			require.Equal(t, "one", string(b))

			for _, bad := range []string{"", ".mender", "../shop.mender", "a/b.mender", "a\nb.mender", strings.Repeat("x", 300)} {
				_, err := Put(ctx, p, bad, file(t, ""), nothing)
				require.Error(t, err, bad)
				_, err = p.Open(ctx, bad)
				require.Error(t, err, bad)
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, err = Put(ended, p, "shop-3.mender", file(t, "three"), nothing)
			require.ErrorIs(t, err, context.Canceled)
			list, err = Releases(ctx, p)
			require.NoError(t, err)
			require.Len(t, list, 3)
		})
	}
}

// Files that are no releases are kept by a directory, a server and a bucket, and do not
// appear among the releases.
func TestOtherFiles(t *testing.T) {
	t.Setenv(HeaderVariable, "JOB-TOKEN: secret")
	for k, v := range placestest.S3(t, "builds", nil) {
		t.Setenv(k, v)
	}
	ctx, sum := context.Background(), strings.Repeat("ab", 32)
	for _, text := range []string{t.TempDir(), placestest.Web(t, "secret").URL, "s3://builds"} {
		p, err := Open(text)
		require.NoError(t, err)
		_, err = Put(ctx, p, sum, file(t, "content"), nothing)
		require.NoError(t, err)
		there, err := Put(ctx, p, sum, file(t, "content"), nothing)
		require.NoError(t, err)
		require.True(t, there)
		list, err := Releases(ctx, p)
		require.NoError(t, err)
		require.Empty(t, list)
	}
	p, err := Open("oci:" + gentest.Registry(t, "", "") + "/shop")
	require.NoError(t, err)
	_, err = Put(ctx, p, sum, file(t, "content"), nothing)
	require.ErrorContains(t, err, "a registry has no name for")
}

// Each refusal says what to do, and is not tried again.
func TestRefusals(t *testing.T) {
	ctx := context.Background()
	for k, v := range placestest.S3(t, "builds", nil) {
		t.Setenv(k, v)
	}
	for text, says := range map[string]string{
		"http://example.com/releases": "is not a place of releases",
		"ftp://example.com/releases":  "is not a place of releases",
		"s3://":                       "is not a bucket",
		"s3://user@builds/shop":       "is not a bucket",
		"oci:UPPER/shop":              "is not a repository",
	} {
		_, err := Open(text)
		require.ErrorContains(t, err, says)
	}
	hint := func(text string) string {
		p, err := Open(text)
		require.NoError(t, err)
		_, err = Releases(ctx, p)
		var refused *Error
		require.ErrorAs(t, err, &refused)
		return refused.Error() + "; " + refused.Hint
	}
	require.Contains(t, hint("s3://none/shop"), "there is no bucket none")
	t.Setenv("AWS_ACCESS_KEY_ID", "stranger")
	require.Contains(t, hint("s3://builds/shop"), "set AWS_ACCESS_KEY_ID")
	require.Contains(t, hint(placestest.Web(t, "secret").URL), "set APP_GEN_RELEASES_HEADER")
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	host := gentest.Registry(t, "builder", "secret")
	require.Contains(t, hint("oci:"+host+"/shop"), "docker login "+host)

	p, err := Open(httptest.NewServer(http.NotFoundHandler()).URL)
	require.NoError(t, err)
	_, err = Put(ctx, p, "shop-1.mender", file(t, "x"), nothing)
	require.ErrorContains(t, err, "does not take shop-1.mender (404)")
}

// A package registry sends downloads on to the store that has its files. The token stays.
func TestTokenStaysWithItsHost(t *testing.T) {
	var got atomic.Value
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Job-Token"))
		_, _ = io.Copy(w, bytes.NewReader([]byte("content")))
	}))
	defer store.Close()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, store.URL+"/file", http.StatusFound)
	}))
	defer front.Close()
	t.Setenv(HeaderVariable, "JOB-TOKEN: secret")
	p, err := Open(front.URL)
	require.NoError(t, err)
	body, err := p.Open(context.Background(), "shop-1.mender")
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Equal(t, "", got.Load())
}

// Two jobs that add releases at a time do not lose each other's line for good.
func TestListKeepsBoth(t *testing.T) {
	server := placestest.Web(t, "")
	p, err := Open(server.URL)
	require.NoError(t, err)
	ctx := context.Background()
	_, err = Put(ctx, p, "shop-1.mender", file(t, "1"), nothing)
	require.NoError(t, err)
	// A job that read the list before shop-1 was in it writes its own.
	require.NoError(t, p.(*web).send(ctx, ListFile, strings.NewReader("shop-2.mender\n"), 14))
	there, err := Put(ctx, p, "shop-1.mender", file(t, "1"), nothing) // the job again
	require.NoError(t, err)
	require.True(t, there)
	list, err := Releases(ctx, p)
	require.NoError(t, err)
	require.Equal(t, []string{"shop-2.mender", "shop-1.mender"}, list)
}

// dripping is a place whose files come one piece after the other, with pauses.
type dripping struct {
	Place
	piece int
	pause time.Duration
}

func (d dripping) Open(ctx context.Context, _ string) (io.ReadCloser, error) {
	return io.NopCloser(readFunc(func(p []byte) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(d.pause):
			return min(len(p), d.piece), nil
		}
	})), nil
}

// put writes a piece of a file after each pause.
func (d dripping) put(ctx context.Context, _ string, _ io.ReaderAt, _ int64, moved func(int64)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d.pause):
			moved(int64(d.piece))
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestSlowPlaces: a server that sends or takes a file, or content, drop by drop is given up
// after a minute, and one that is only slow after four hours.
func TestSlowPlaces(t *testing.T) {
	for _, c := range []struct {
		d    dripping
		says string
		took time.Duration
	}{
		{dripping{piece: 1, pause: time.Second}, "less than 16 KiB moved in 1m0s", attempts * stalled},
		{dripping{piece: progress, pause: 50 * time.Second}, "shop.mender took longer than 4h0m0s in all", whole},
	} {
		path := filepath.Join(t.TempDir(), "shop.mender")
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := Download(t.Context(), c.d, "shop.mender", path, func(int64) {})
			require.EqualError(t, err, c.says)
			require.Equal(t, c.took, time.Since(began).Round(time.Second))
			require.NoFileExists(t, path)
		})
		synctest.Test(t, func(t *testing.T) {
			content := artifact.Content{Digest: digest.Of(nil), Size: 1 << 40}
			began := time.Now()
			err := (&Contents{c.d, named{place: c.d}}).Compare(t.Context(), content)
			require.EqualError(t, err, strings.ReplaceAll(c.says, "shop.mender", content.Digest.Hex()))
			require.Equal(t, c.took, time.Since(began).Round(time.Second))
		})
		from := file(t, "content")
		synctest.Test(t, func(t *testing.T) {
			content := artifact.Content{Digest: digest.Of([]byte("content")), Size: 7}
			began := time.Now()
			err := (&Contents{c.d, named{place: c.d}}).Write(t.Context(), content, from)
			require.EqualError(t, err, strings.ReplaceAll(c.says, "shop.mender", content.Digest.Hex()))
			require.Equal(t, c.took, time.Since(began).Round(time.Second))
		})
	}
}
