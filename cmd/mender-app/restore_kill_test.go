package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable/faults"
)

// TestRestoreKilled kills a restore at every durable step. After mender-app resume the
// application is installed with its values and its history, or nothing of the backup is there.
func TestRestoreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, os.Mkdir(ready, 0o755))
	d, err := devicetest.NewDevice(ready)
	require.NoError(t, err)
	features := "stream stage components verify sync repair engine secrets status check/1 services/1 overrides/1 values/1 data/1\n"
	require.NoError(t, os.WriteFile(filepath.Join(ready, "fake/features"), []byte(features), 0o644))
	for _, name := range []string{"shop", "till"} {
		a := devicetest.Artifact{Name: name + "-1", App: name, Compose: name, Images: []string{"web:1=web-" + name}, Type: "binary"}
		require.NoError(t, a.Write(filepath.Join(ready, name+".mender")))
	}
	mustRun(t, d, "install", "--commit", "shop.mender")
	mustRun(t, d, "values", "set", "LANGUAGE=fr", "NEW=1")
	mustRun(t, d, "values", "set", "--app", "shop", "SHOPV=1")
	mustRun(t, d, "backup", "all.backup")
	mustRun(t, d, "values", "unset", "--app", "shop", "SHOPV")
	mustRun(t, d, "purge", "--force", "shop")
	mustRun(t, d, "values", "unset", "LANGUAGE")
	mustRun(t, d, "values", "unset", "NEW")
	mustRun(t, d, "install", "--commit", "till.mender")
	require.NoError(t, os.Remove(store.At(filepath.Join(ready, "store")).HistoryFile("shop")))
	before := mustRun(t, d, "values", "--json")

	kills, restored := 0, 0
	for n := 1; ; n++ {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(ready)))
		d, err := devicetest.NewDevice(dir)
		require.NoError(t, err)
		_, stderr, err := d.Run([]string{fmt.Sprintf("%s=mender-app restore/*:%d:kill", faults.Env, n)}, "mender-app", "restore", "--unsigned", "--values", "all.backup", "shop")
		if err == nil {
			break
		}
		kills++
		where := fmt.Sprintf("killed at point %d: %s", n, stderr)
		require.ErrorContains(t, err, "killed", where)
		mustRun(t, d, "resume")
		if _, _, err := d.Run(nil, "mender-app", "rollback"); err == nil {
			mustRun(t, d, "resume") // it had waited for its commit
		}
		s := store.At(filepath.Join(dir, "store"))
		_, err = os.Stat(s.Meta(presetFile))
		require.ErrorIs(t, err, os.ErrNotExist, where)
		values := mustRun(t, d, "values", "--json") + readText(s.Meta("values/values.json"))
		history, _ := os.ReadFile(s.HistoryFile("shop"))
		installed := strings.Contains(string(history), `"status":"installed"`)
		if a, err := s.App("shop"); err == nil && a.Current != "" {
			restored++
			require.Contains(t, values, "SHOPV", where)
			require.Contains(t, values, "LANGUAGE", where)
			require.True(t, installed, where)
			continue
		}
		require.Equal(t, before, mustRun(t, d, "values", "--json"), where)
		require.NotContains(t, values, "SHOPV", where)
		require.False(t, installed, "%s: %s", where, history)
	}
	require.Positive(t, restored)
	require.Greater(t, kills, restored)
	t.Logf("figures: mender-app restore: %d kills, restored after %d", kills, restored)
}

// readText reads a file that may be missing.
func readText(file string) string {
	text, _ := os.ReadFile(file)
	return string(text)
}
