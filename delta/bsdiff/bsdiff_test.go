package bsdiff_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gabstv/go-bsdiff/pkg/bsdiff"
	"github.com/stretchr/testify/require"

	ours "github.com/mender-app/mender-app/delta/bsdiff"
)

// pair is an old file and a new one that shares most of it, at other places.
func pair(n int) (old, next []byte) {
	r := rand.New(rand.NewPCG(1, 2))
	old = make([]byte, n)
	for i := range old {
		old[i] = byte(r.IntN(64))
	}
	next = append([]byte("begin "), old[n/2:]...)
	next = append(next, old[:n/2]...)
	for i := 0; i < len(next); i += 997 {
		next[i]++
	}
	return old, append(next, "the end"...)
}

func decode(old, delta []byte, size int64) ([]byte, error) {
	var b bytes.Buffer
	err := ours.Decode(context.Background(), &b, bytes.NewReader(old), int64(len(old)), bytes.NewReader(delta), int64(len(delta)), size)
	return b.Bytes(), err
}

// Deltas of both encoders make the new file again.
func TestDecode(t *testing.T) {
	old, next := pair(100_000)
	for name, c := range map[string][2][]byte{
		"most is shared": {old, next}, "nothing old": {nil, next}, "nothing new": {old, nil}, "the same": {old, old},
		"nothing shared": {bytes.Repeat([]byte("a"), 5000), bytes.Repeat([]byte("b"), 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			for encoder, encode := range map[string]func(*testing.T, []byte, []byte) []byte{"go-bsdiff": library, "bsdiff": program} {
				delta := encode(t, c[0], c[1])
				got, err := decode(c[0], delta, int64(len(c[1])))
				require.NoError(t, err, encoder)
				require.True(t, bytes.Equal(c[1], got), encoder)
				size, err := ours.NewSize(bytes.NewReader(delta))
				require.NoError(t, err)
				require.EqualValues(t, len(c[1]), size)
			}
		})
	}
}

func library(t *testing.T, old, next []byte) []byte {
	delta, err := bsdiff.Bytes(old, next)
	require.NoError(t, err)
	return delta
}

func program(t *testing.T, old, next []byte) []byte {
	if _, err := exec.LookPath("bsdiff"); err != nil || len(old) == 0 || len(next) == 0 { // it maps no empty files
		return library(t, old, next)
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("old"), old, 0o600))
	require.NoError(t, os.WriteFile(at("new"), next, 0o600))
	out, err := exec.Command("bsdiff", at("old"), at("new"), at("delta")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	delta, err := os.ReadFile(at("delta"))
	require.NoError(t, err)
	return delta
}

// A malformed delta is an error, and writes no more than was announced.
func TestHostile(t *testing.T) {
	old, next := pair(20_000)
	delta := library(t, old, next)
	_, err := decode(old, delta, int64(len(next))-1)
	require.ErrorIs(t, err, ours.ErrFormat, "another size than announced")
	for _, n := range []int{0, 8, 31, 32, 60, len(delta) / 2} {
		_, err := decode(old, delta[:n], int64(len(next)))
		require.ErrorIs(t, err, ours.ErrFormat, "cut off at %d", n)
	}
	for at := 8; at < 32; at += 8 {
		for _, n := range []uint64{1<<63 | 1, 1<<63 - 1, 1 << 40} {
			bad := bytes.Clone(delta)
			binary.LittleEndian.PutUint64(bad[at:], n)
			_, err := decode(old, bad, int64(len(next)))
			require.ErrorIs(t, err, ours.ErrFormat, "%x at %d", n, at)
		}
	}
}

func FuzzDecode(f *testing.F) {
	old, next := pair(2000)
	delta, err := bsdiff.Bytes(old, next)
	require.NoError(f, err)
	f.Add(delta)
	f.Fuzz(func(t *testing.T, delta []byte) {
		const size = 2013
		w := &counter{}
		err := ours.Decode(t.Context(), w, bytes.NewReader(old), int64(len(old)), bytes.NewReader(delta), int64(len(delta)), size)
		require.LessOrEqual(t, w.n, size)
		if err == nil {
			require.Equal(t, size, w.n)
		}
	})
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

var _ io.Writer = (*counter)(nil)
