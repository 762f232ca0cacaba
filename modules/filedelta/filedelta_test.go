package filedelta_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gabstv/go-bsdiff/pkg/bsdiff"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/modules/filedelta"
)

// The test program is the process that applies a delta as well.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == filedelta.Verb {
		os.Exit(filedelta.Main(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == goBsdiff {
		os.Exit(goBsdiffMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func contents() (old, next []byte) {
	r := rand.New(rand.NewPCG(3, 4))
	old = make([]byte, 300_000)
	for i := range old {
		old[i] = byte(r.IntN(100))
	}
	next = append(bytes.Clone(old[100_000:]), old[:100_000]...)
	for i := 0; i < len(next); i += 5003 {
		next[i]++
	}
	return old, next
}

func ours(t *testing.T, old, next []byte) []byte {
	t.Helper()
	blob := func(b []byte) delta.Image {
		return delta.Image{Name: "file", Objects: []delta.Object{{Digest: digest.Of(b), Size: int64(len(b)), Kind: delta.Blob,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}}}
	}
	var out bytes.Buffer
	_, err := encoder.Encode(t.Context(), &out, []delta.Image{blob(old)}, blob(next), encoder.Options{})
	require.NoError(t, err)
	return out.Bytes()
}

func xdelta3(t *testing.T, old, next []byte) []byte {
	t.Helper()
	if _, err := exec.LookPath("xdelta3"); err != nil {
		t.Skip("needs xdelta3")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old"), old, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), next, 0o600))
	out, err := exec.Command("xdelta3", "-e", "-s", filepath.Join(dir, "old"), filepath.Join(dir, "new"), filepath.Join(dir, "delta")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(filepath.Join(dir, "delta"))
	require.NoError(t, err)
	return b
}

// apply applies a delta with one of the two functions.
func apply(t *testing.T, with func(context.Context, filedelta.Request) error, ctx context.Context, old, patch []byte, q filedelta.Request) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []struct {
		file **os.File
		text []byte
	}{{&q.Old, old}, {&q.Delta, patch}, {&q.New, nil}} {
		file, err := os.CreateTemp(dir, "x")
		require.NoError(t, err)
		defer file.Close()
		_, err = file.Write(f.text)
		require.NoError(t, err)
		_, err = file.Seek(0, io.SeekStart)
		require.NoError(t, err)
		*f.file = file
	}
	q.Digest = digest.Of(old)
	if err := with(ctx, q); err != nil {
		return nil, err
	}
	return os.ReadFile(q.New.Name())
}

// Each kind of delta makes the new file, here and in a process of its own that has
// given up its rights; with its size announced, and without.
func TestApply(t *testing.T) {
	old, next := contents()
	bs, err := bsdiff.Bytes(old, next)
	require.NoError(t, err)
	for kind, patch := range map[string][]byte{"ours": ours(t, old, next), "xdelta3": xdelta3(t, old, next), "bsdiff": bs, "unchanged": ours(t, old, old)} {
		want := next
		if kind == "unchanged" {
			want = old
		}
		for how, with := range map[string]func(context.Context, filedelta.Request) error{"here": filedelta.Apply, "process": filedelta.Run} {
			for _, size := range []int64{int64(len(want)), -1} {
				got, err := apply(t, with, t.Context(), old, patch, filedelta.Request{Size: size, Max: int64(len(want))})
				require.NoError(t, err, "%s %s", kind, how)
				require.True(t, bytes.Equal(want, got), "%s %s", kind, how)
			}
			_, err := apply(t, with, t.Context(), old, patch, filedelta.Request{Size: int64(len(want)) - 1, Max: int64(len(want)) - 1})
			require.ErrorIs(t, err, filedelta.ErrDelta, "%s %s: larger than announced", kind, how)
			_, err = apply(t, with, t.Context(), old, patch, filedelta.Request{Size: -1, Max: 1000})
			require.ErrorIs(t, err, filedelta.ErrDelta, "%s %s: larger than there is room", kind, how)
			_, err = apply(t, with, t.Context(), old, patch[:len(patch)/2], filedelta.Request{Size: int64(len(want)), Max: int64(len(want))})
			require.ErrorIs(t, err, filedelta.ErrDelta, "%s %s: cut off", kind, how)
		}
	}
	for _, garbage := range []string{"", "garbage", "BSDIFF40", "\xd6\xc3\xc4\x00"} {
		_, err := apply(t, filedelta.Run, t.Context(), old, []byte(garbage), filedelta.Request{Size: 5, Max: 5})
		require.ErrorIs(t, err, filedelta.ErrDelta, "%q", garbage)
		require.NotContains(t, err.Error(), "\n")
	}
}

// A delta that needs a temporary file is refused: the process could not make it.
func TestNoTemporaryFile(t *testing.T) {
	old, next := contents()
	r := bufio.NewReader(bytes.NewReader(ours(t, old, next)))
	h, err := delta.ReadHeader(r, decoder.Knows)
	require.NoError(t, err)
	h.Features, h.Temp = append(h.Features, delta.FeatureFar), 1<<20
	head, err := delta.AppendHeader(nil, h)
	require.NoError(t, err)
	body, err := io.ReadAll(r)
	require.NoError(t, err)
	_, err = apply(t, filedelta.Run, t.Context(), old, append(head, body...), filedelta.Request{Size: -1, Max: int64(len(next))})
	require.ErrorIs(t, err, filedelta.ErrDelta)
	require.ErrorContains(t, err, "temporary file")
}

// The end of the context ends the process.
func TestRunEnds(t *testing.T) {
	old, next := contents()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := apply(t, filedelta.Run, ctx, old, ours(t, old, next), filedelta.Request{Size: int64(len(next)), Max: int64(len(next))})
	require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
}
