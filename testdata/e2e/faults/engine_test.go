package faults

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
	"github.com/mender-app/mender-app/testdata/e2e"
)

// An engine is killed in the middle of a load. The error says so, the engine comes
// back with its old content alone, the old release runs, and the update installs
// afterwards.
func TestEngineKilledInLoad(t *testing.T) {
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			d := bed.StartWith(t, e)
			e2e.ShortHealthWindow(t, d)
			text := strings.ReplaceAll(e2e.Compose("1"), "    image:", "    restart: always\n    image:")
			one := e2e.Generate(t, d, "shop", "shop-1", "1", text, e2e.Archive(t, e2e.Web(t, "1", "")), e2e.Archive(t, e2e.Stock(t)))
			text = strings.ReplaceAll(text, "shop/web:1", "shop/web:2")
			two := e2e.Generate(t, d, "shop", "shop-2", "2", text, e2e.Archive(t, e2e.Web(t, "2", "")), e2e.Archive(t, e2e.Stock(t)))
			e2e.Mender(t, d, "install", one)
			e2e.Mender(t, d, "commit")
			w := e2e.Watch(t, d)
			e2e.Says(t, w, "web 1")
			before := d.MustState(t)

			file := filepath.Join(t.TempDir(), "web.tar")
			require.NoError(t, bed.WriteArchive(file, e2e.Web(t, "2", "")))
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			load := d.Command(ctx, e2e.ComposeSubmodule, "LOAD", "shop", "shop/web:2", "-")
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
			e2e.Says(t, w, "web 1")
			after := d.MustState(t)
			require.Equal(t, before.Images, after.Images)
			require.Equal(t, before.Files, after.Files)
			e2e.Mender(t, d, "install", two)
			e2e.Mender(t, d, "commit")
			e2e.Says(t, w, "web 2")
			d.MustRun(t, "mender-app", "verify")
		})
	}
}
