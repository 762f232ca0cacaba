package containermodules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// put writes a file of a store.
func put(t *testing.T, text string, path ...string) {
	t.Helper()
	at := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
}

const compose = `services:
  web:
    image: "shop/web:1" # the shop
  job:
    image: shop/web:1
  side:
    image: reg.example/side@sha256:00
  other:
    image: ${REGISTRY}/x:1
`

func install(t *testing.T, dir, place, project string) {
	t.Helper()
	put(t, compose, dir, place, "manifests", "docker-compose.yml")
	put(t, project+"\n", dir, place, "project_name")
	put(t, "0123456789ab\n", dir, place, "image_ids")
}

func TestProject(t *testing.T) {
	_, ok := Store{}.Project()
	require.False(t, ok)
	for name, c := range map[string]struct {
		places map[string]string // the project in each directory
		want   string            // the directory that counts
	}{
		"nothing":              {nil, ""},
		"committed":            {map[string]string{"current": "shop"}, "current"},
		"not cleaned up":       {map[string]string{"current": "shop", "cleanup": "shop"}, "current"},
		"an update is open":    {map[string]string{"previous": "shop", "new": "shop"}, "previous"},
		"killed in the commit": {map[string]string{"current": "shop", "previous": "shop"}, "current"},
		"first installation":   {map[string]string{"new": "shop"}, "new"},
		"removed":              {map[string]string{"cleanup": "shop"}, ""},
		"no name":              {map[string]string{"current": "../x", "previous": ""}, ""},
		"too long a name":      {map[string]string{"current": strings.Repeat("x", 5000)}, ""},
	} {
		dir := t.TempDir()
		for place, project := range c.places {
			install(t, dir, place, project)
		}
		// An engine makes what a container mounts and is gone.
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "new/manifests/conf"), 0o755))
		p, ok := At(dir).Project()
		require.Equal(t, c.want != "", ok, name)
		if ok {
			require.Equal(t, Project{"shop", filepath.Join(dir, c.want, "manifests")}, p, name)
			require.Equal(t, []string{"shop/web:1", "reg.example/side@sha256:00"}, p.Images(), name)
		}
	}
}

func TestConfigured(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                    DefaultDir,
		"PERSISTENT_STORE=/srv/mdc\n":         "/srv/mdc",
		"WAIT_TIMEOUT=5\n":                    DefaultDir,
		"PERSISTENT_STORE=\"$HOME/x\"\n":      "error",
		"PERSISTENT_STORE=relative\n":         "error",
		"if true; then DOCKER_CMD=x; fi\n":    "error",
		"# set it\nPERSISTENT_STORE='/a b'\n": "/a b",
	} {
		put(t, text, dir, ConfigName)
		s, err := Configured(dir)
		if want == "error" {
			require.ErrorContains(t, err, ConfigName, text)
			want = DefaultDir
		} else {
			require.NoError(t, err, text)
		}
		require.Equal(t, want, s.Dir(), text)
	}
	s, err := Configured(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, At(DefaultDir), s)
}

func TestRan(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	require.NoError(t, os.Mkdir(real, 0o755))
	require.NoError(t, os.Symlink(real, filepath.Join(dir, "link")))
	s := At(filepath.Join(dir, "link"))
	for path, want := range map[string]bool{
		"link/new/manifests": true, "link/current/manifests": true, "real/new/manifests": true,
		"link/new": false, "link/other/manifests": false, "link/new/manifests/x": false, "elsewhere/new/manifests": false, "": false,
	} {
		require.Equal(t, want, s.Ran(filepath.Join(dir, path)), path)
	}
	require.False(t, Store{}.Ran("/new/manifests"))
}

func TestCopyTo(t *testing.T) {
	for name, c := range map[string]struct{ compose, env, want string }{
		"no name":          {"services: {}\n", "", ""},
		"no name and .env": {"services: {}\n", "A=1", "A=1"},
		"a name":           {"name: other\nservices: {}\n", "", "COMPOSE_PROJECT_NAME=shop\n"},
		"a name in JSON":   {`{"name": "other"}`, "A=1", "A=1\nCOMPOSE_PROJECT_NAME=shop\n"},
		"a name in .env":   {"services: {}\n", "COMPOSE_PROJECT_NAME=other", "COMPOSE_PROJECT_NAME=other\nCOMPOSE_PROJECT_NAME=shop\n"},
		"a service's name": {"services:\n  name:\n    image: x\n", "", ""},
	} {
		dir := t.TempDir()
		install(t, dir, "current", "shop")
		put(t, c.compose, dir, "current/manifests/docker-compose.yml")
		if c.env != "" {
			put(t, c.env, dir, "current/manifests/.env")
		}
		p, ok := At(dir).Project()
		require.True(t, ok)
		to := filepath.Join(dir, "copy")
		require.NoError(t, p.CopyTo(to), name)
		before, err := os.Stat(filepath.Join(p.Manifests, "docker-compose.yml"))
		require.NoError(t, err)
		after, err := os.Stat(filepath.Join(to, "docker-compose.yml"))
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after))
		for at, want := range map[string]string{to: c.want, p.Manifests: c.env} {
			env, err := os.ReadFile(filepath.Join(at, ".env"))
			require.Equal(t, want == "", os.IsNotExist(err), name)
			require.Equal(t, want, string(env), name)
		}
	}
}

func TestDrop(t *testing.T) {
	dir := t.TempDir()
	s := At(dir)
	install(t, dir, "current", "shop")
	install(t, dir, "cleanup", "shop")
	install(t, dir, "previous", "other")
	for range 2 {
		require.NoError(t, s.Drop("shop"))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, "previous", entries[0].Name())
	}
	require.NoError(t, At(filepath.Join(dir, "none")).Drop("shop"))
	require.NoError(t, Store{}.Drop("shop"))
}
