package e2e

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// An engine is killed in the middle of a load. The error says so, the engine comes
// back with its old content alone, the old release runs, and the update installs
// afterwards.
func TestEngineKilledInLoad(t *testing.T) {
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWith(t, e)
			shortHealthWindow(t, d)
			text := strings.ReplaceAll(compose("1"), "    image:", "    restart: always\n    image:")
			one := generate(t, d, "shop", "shop-1", "1", text, archive(t, web(t, "1", "")), archive(t, stock(t)))
			text = strings.ReplaceAll(text, "shop/web:1", "shop/web:2")
			two := generate(t, d, "shop", "shop-2", "2", text, archive(t, web(t, "2", "")), archive(t, stock(t)))
			mender(t, d, "install", one)
			mender(t, d, "commit")
			w := watch(t, d)
			says(t, w, "web 1")
			before := d.MustState(t)

			file := filepath.Join(t.TempDir(), "web.tar")
			require.NoError(t, bed.WriteArchive(file, web(t, "2", "")))
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			load := d.Command(ctx, submodule, "LOAD", "shop", "shop/web:2", "-")
			in, err := load.StdinPipe()
			require.NoError(t, err)
			var said bytes.Buffer
			load.Stderr = &said
			require.NoError(t, load.Start())
			// Send half of it, which is more than the pipe holds: the engine has
			// received a part.
			_, err = in.Write(content[:len(content)/2])
			require.NoError(t, err)
			d.CrashEngine()
			_, _ = io.Copy(in, bytes.NewReader(content[len(content)/2:]))
			_ = in.Close()
			require.Error(t, load.Wait())
			require.Regexp(t, `(?i)docker load: .*(EOF|reset|refused|broken pipe|closed|connect)`, said.String())

			require.NoError(t, d.StartEngine())
			says(t, w, "web 1")
			after := d.MustState(t)
			require.Equal(t, before.Images, after.Images)
			require.Equal(t, before.Files, after.Files)
			mender(t, d, "install", two)
			mender(t, d, "commit")
			says(t, w, "web 2")
			d.MustRun(t, "mender-app", "verify")
		})
	}
}
