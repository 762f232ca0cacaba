package imagestore

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta/decoder"
)

// nowhere is a target that has nothing, and drops what it gets.
type nowhere struct{ Target }

func (nowhere) Has(context.Context, Identity) (bool, error) { return false, nil }
func (nowhere) Present(context.Context, []image.Digest) (map[image.Digest]image.Descriptor, error) {
	return nil, nil
}
func (nowhere) Room(context.Context) (int64, error) { return NoRoomLimit, nil }
func (nowhere) Old(context.Context, []image.Digest) (Old, error) {
	return noOld{}, nil
}
func (nowhere) Load(_ context.Context, archive io.Reader) error {
	_, err := io.Copy(io.Discard, archive)
	return err
}

type noOld struct{ Old }

func (noOld) Close() error { return nil }

// TestBenchPayload receives the images of a first installation as `app` and a sub-module do
// on a device, but for the engine: what a processor takes for it can be counted, with this
// program built for arm/v7 (docs/BENCHMARKS.md).
//
//	MENDER_APP_BENCH_PAYLOAD=images.tar.gz qemu-arm -plugin count.so imagestore-arm.test -test.run TestBenchPayload
func TestBenchPayload(t *testing.T) {
	name := os.Getenv("MENDER_APP_BENCH_PAYLOAD")
	if name == "" {
		t.Skip("MENDER_APP_BENCH_PAYLOAD is not set")
	}
	debug.SetMemoryLimit(decoder.MemoryLimit)
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, artifact.ReadImages(f, artifact.ReadOptions{}, func(info artifact.ImageInfo, r io.Reader) error {
		id, loaded, err := Receive(t.Context(), nowhere{}, r, LoadRequest{
			Want: Identity{Config: info.Digest}, TempDir: t.TempDir(), Log: t.Logf,
		}, func(image.Digest) []string { return []string{info.URLNew} })
		require.Equal(t, err == nil, loaded)
		require.Equal(t, info.Digest, id.Config)
		return err
	}))
}
