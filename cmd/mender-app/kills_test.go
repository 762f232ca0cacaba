package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/generator/content"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/store/durable/faults"
)

// leftovers are the temporary files of a device, and requests that nobody waits for. What was
// fetched of a release stays for the next try.
func leftovers(t *testing.T, d *devicetest.Device) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(d.Dir, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(d.Dir, path)
		name := filepath.Base(rel)
		if rel == "store/.mender-app/content" {
			return filepath.SkipDir
		}
		if strings.HasPrefix(name, durable.TempPrefix) || strings.HasPrefix(rel, "tmp/") || strings.HasPrefix(rel, "store/.mender-app/tmp/") ||
			strings.HasPrefix(name, ".mender-app-") || filepath.Dir(rel) == "store/.mender-app/aborts" {
			list = append(list, rel)
		}
		return err
	}))
	return list
}

// TestKilledLeavesNothing kills commands while they have temporary files, each at a place of
// its own: the next call that has the store's lock removes them.
func TestKilledLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	t.Parallel()
	for _, c := range []struct {
		about string
		hang  string // the verb of the sub-module that never ends
		fault string // the point at which the command is killed instead
		open  bool   // an update waits for its commit
		left  string // what is left, a pattern; every case leaves something
		args  []string
	}{
		{"status", "STATUS", "", false, "tmp/*", []string{"status"}},
		{"check", "CHECK", "", false, "tmp/*", []string{"check", "v2.mender"}},
		{"logs", "LOGS", "", false, "tmp/*", []string{"logs", "shop"}},
		{"abort", "", "mender-app abort/rename.shop.json", true, "store/.mender-app/aborts/.tmp-*", []string{"abort"}},
		{"abort that was asked for", "", "mender-app abort/wrote.shop.json", true, "store/.mender-app/aborts/shop.json", []string{"abort"}},
		{"values", "", "mender-app values/rename.values.json", false, "store/.mender-app/values/.tmp-*", []string{"values", "set", "A=1"}},
		{"hold", "", "mender-app hold/rename.hold.json", false, "store/.mender-app/.tmp-*", []string{"hold", "--reason", "night"}},
		{"stage", "", "mender-app stage/rename.DIGEST.mender", false, "store/.mender-app/staged/.tmp-*", []string{"stage", "v2.mender"}},
		{"client", "", "mender-app install/rename.client.json", false, "store/.mender-app/client/.tmp-*", []string{"install", "v2.mender"}},
		{"backup", "SAVE", "", false, ".mender-app-*", []string{"backup", "--without-data", "all.backup"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t)
			a := devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Images: []string{"web:1=web-one"}, Type: "binary"}
			require.NoError(t, a.Write(filepath.Join(d.Dir, "v1.mender")))
			mustRun(t, d, "install", "--commit", "v1.mender")
			if c.open {
				mustRun(t, d, "install", "v2.mender")
			}
			data, err := os.ReadFile(filepath.Join(d.Dir, "v2.mender"))
			require.NoError(t, err)
			fault := strings.ReplaceAll(c.fault, "DIGEST", digest.Of(data).Hex())
			var env []string
			if c.hang != "" {
				require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "fake/behave"), []byte(c.hang+" hang\n"), 0o644))
			}
			if c.fault != "" {
				env = []string{fmt.Sprintf("%s=%s:1:kill", faults.Env, fault)}
			}
			cmd := d.Command("mender-app", c.args...)
			cmd.Env = append(cmd.Env, env...)
			require.NoError(t, cmd.Start())
			if c.hang != "" {
				calls := filepath.Join(d.Dir, "fake/calls")
				require.Eventually(t, func() bool {
					text, _ := os.ReadFile(calls)
					left, _ := filepath.Glob(filepath.Join(d.Dir, c.left))
					return strings.Contains(string(text), c.hang) && len(left) > 0
				}, 20*time.Second, time.Millisecond)
				require.NoError(t, cmd.Process.Kill())
			}
			require.ErrorContains(t, cmd.Wait(), "killed")
			left, err := filepath.Glob(filepath.Join(d.Dir, c.left))
			require.NoError(t, err)
			require.NotEmpty(t, left, "the kill left nothing: %v", leftovers(t, d))
			require.Eventually(t, func() bool { return len(runsFrom(d.Dir)) == 0 }, 20*time.Second, 10*time.Millisecond, "%v", runsFrom(d.Dir))
			require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "fake/behave")))
			if c.about == "backup" {
				mustRun(t, d, "backup", "--without-data", "another.backup") // only who writes there looks there
			}
			if _, stderr, err := d.Run(nil, "mender-app", "resume"); err != nil {
				require.Contains(t, stderr, "waits", "%s", stderr)
			}
			if c.open {
				_, _, _ = d.Run(nil, "mender-app", "rollback") // unless the abort has done it
				mustRun(t, d, "resume")
			}
			require.Empty(t, leftovers(t, d))
		})
	}
}

// number is what a variable of the environment says.
func number(t *testing.T, name string, otherwise int) int {
	if s := os.Getenv(name); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err, name)
		return n
	}
	return otherwise
}

// seed is what a test draws from: MENDER_APP_SEED makes it draw the same again.
func seed(t *testing.T) uint64 {
	n := number(t, "MENDER_APP_SEED", int(time.Now().Unix()))
	t.Logf("MENDER_APP_SEED=%d", n)
	return uint64(n)
}

// TestRandomKills kills commands of the operator at random instants. Afterwards one release
// runs, the one of the record; no process and no temporary file is left. MENDER_APP_KILLS is
// how many, MENDER_APP_SEED which.
func TestRandomKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; left out of -short")
	}
	count := number(t, "MENDER_APP_KILLS", 20)
	drawn := seed(t)
	random := rand.New(rand.NewPCG(drawn, 0))
	d := newDevice(t)
	for i, compose := range []string{"one", "two"} {
		a := devicetest.Artifact{Name: fmt.Sprint("shop-", i+1), App: "shop", Compose: compose, Images: []string{"web:1=web-" + compose}, Type: "binary"}
		require.NoError(t, a.Write(filepath.Join(d.Dir, fmt.Sprintf("v%d.mender", i+1))))
	}
	byReference(t, d, "v3.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "three", Images: []string{"web:1=web-three", "db:1=db-three"}})
	mustRun(t, d, "install", "--commit", "v1.mender")
	commands := [][]string{
		{"install", "--commit", "v3.mender"}, {"install", "v3.mender"}, {"stage", "v3.mender"}, {"check", "v3.mender"},
		{"install", "--commit", "v2.mender"}, {"install", "--commit", "v1.mender"}, {"install", "v2.mender"}, {"install", "v1.mender"},
		{"commit"}, {"rollback"}, {"rollback", "shop"}, {"abort"}, {"stop", "shop"}, {"start", "shop"}, {"restart", "shop"},
		{"check", "v2.mender"}, {"status"}, {"stage", "v2.mender"}, {"staged"}, {"backup", "--without-data", "kept.backup"}, {"values", "set", "A=1"},
		{"values", "unset", "A"}, {"hold"}, {"unhold"}, {"verify"}, {"resume"}, {"reconcile"}, {"health"}, {"history", "shop"},
	}
	kills, took := 0, map[string]time.Duration{} // how long each command last took
	i := 0
	for ; kills < count; i++ {
		args := commands[random.IntN(len(commands))]
		about := fmt.Sprintf("seed %d, number %d, %v", drawn, i, args)
		cmd := d.Command("mender-app", args...)
		begun := time.Now()
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(cmp.Or(took[args[0]], 150*time.Millisecond)))), func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil && strings.Contains(err.Error(), "killed") {
			kills++
		} else {
			took[args[0]] = time.Since(begun)
		}
		timer.Stop()
		require.Eventually(t, func() bool { return len(runsFrom(d.Dir)) == 0 }, 30*time.Second, 5*time.Millisecond, "%s: %v", about, runsFrom(d.Dir))
		_, _, _ = d.Run(nil, "mender-app", "unhold")
		_, stderr, err := d.Run(nil, "mender-app", "resume")
		require.NoError(t, err, "%s: resume: %s", about, stderr)
		if _, _, err := d.Run(nil, "mender-app", "rollback"); err == nil {
			about += ", rolled back"
		}
		mustRun(t, d, "resume")
		mustRun(t, d, "start", "shop")
		a, err := store.At(filepath.Join(d.Dir, "store")).App("shop")
		require.NoError(t, err, about)
		require.Nil(t, a.Deployment, about)
		r, err := a.Release(a.Current)
		require.NoError(t, err, about)
		require.Equal(t, map[string]string{"shop-1": "one", "shop-2": "two", "shop-3": "three"}[r.ArtifactName], d.Running("shop"), about)
		if _, err := os.Stat(filepath.Join(d.Dir, "kept.backup")); err == nil || args[0] == "backup" {
			mustRun(t, d, "backup", "--without-data", "kept.backup")
		}
		require.Empty(t, leftovers(t, d), about)
	}
	mustRun(t, d, "install", "--commit", "v1.mender")
	mustRun(t, d, "install", "--commit", "v2.mender")
	require.NoDirExists(t, filepath.Join(d.Dir, "store/.mender-app/content"), "nothing goes on with it any more")
	t.Logf("figures: mender-app: %d kills in %d commands, 0 violations", kills, i)
}

// byReference makes an artifact whose images a slow server has.
func byReference(t *testing.T, d *devicetest.Device, file string, a devicetest.Artifact) {
	t.Helper()
	dir := t.TempDir()
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	whole := filepath.Join(t.TempDir(), file)
	require.NoError(t, a.Write(whole))
	place, err := places.OpenContents(dir)
	require.NoError(t, err)
	_, err = content.Take(t.Context(), content.Options{Artifact: whole, Output: filepath.Join(d.Dir, file), Place: place, Sources: []string{server.URL}})
	require.NoError(t, err)
}
