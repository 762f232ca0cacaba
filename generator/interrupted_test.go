package generator

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/source"
)

// What was made before an interruption is not made again.
func TestInterrupted(t *testing.T) {
	s := newShop(t)
	o := s.options(t, "web:2", "extra:1")
	o.Images.Coding = Coded
	o.Build.CacheDir, o.Build.CacheLimit = t.TempDir(), 1<<20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var began [2]atomic.Int64
	o.Build.Progress = func(e source.Event) {
		if e.Stage != "encode" {
			return
		}
		switch e.What {
		case "shop/web:2":
			began[0].Add(1)
		case "shop/extra:1":
			began[1].Add(1)
			cancel()
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one image after the other
	_, err := Generate(ctx, o, false)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, began[0].Load())
	began[0].Store(0)
	_, err = Generate(t.Context(), o, false)
	require.NoError(t, err)
	require.Zero(t, began[0].Load(), "it was kept")
	require.Positive(t, began[1].Load())
}
