package components

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// conforms runs app-conformance on a device. It requires that no fault is
// found and returns how many checks passed.
func conforms(t *testing.T, d *bed.Device, protocol string, args ...string) (passed int) {
	t.Helper()
	r, err := d.Run("app-conformance", append([]string{"--json"}, args...)...)
	require.NoError(t, err)
	var report struct {
		Protocol string
		Findings []struct{ Verb, Check, Result, Reason string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &report), r.Output())
	for _, f := range report.Findings {
		if f.Result == "pass" {
			passed++
		} else {
			t.Logf("%s: %s: %s: %s", f.Verb, f.Check, f.Result, f.Reason)
		}
		require.NotEqual(t, "the rest of the application's life", f.Check, "%v", f)
	}
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, protocol, report.Protocol)
	return passed
}

// writeFixture writes files, by their paths, for app-conformance.
func writeFixture(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// A sub-module of the shell reference's protocol passes as one.
func TestConformanceOfPlainSubmodule(t *testing.T) {
	t.Parallel()
	d := bed.StartWithoutEngine(t)
	require.NoError(t, os.WriteFile(d.Share("plain"), []byte(e2e.PlainSubmodule), 0o755))
	files := map[string]string{}
	for release, content := range map[string]string{"good": "tool one", "better": "tool two", "bad": "tool bad"} {
		files[release+"/manifests/files.list"] = "tool\ndata\n"
		files[release+"/components/tool"] = content
		files[release+"/components/data"] = "the same"
	}
	writeFixture(t, d.Share("fixture"), files)
	require.Greater(t, conforms(t, d, "1.0", "--fixture", d.Share("fixture"), d.Share("plain")), 80)
	require.Empty(t, d.MustRun(t, "sh", "-c", "ls /data/plain"), "nothing is left behind")
}

// The sub-modules that come with mender-app pass like any other.
func TestConformanceOfDockerCompose(t *testing.T) {
	d := e2e.Device(t)
	dir := d.Share("fixture")
	files := map[string]string{}
	for release, mode := range map[string]string{"good": "ok", "better": "ok", "bad": "unhealthy"} {
		version := map[string]string{"good": "1", "better": "2", "bad": "3"}[release]
		image := e2e.Build(t, bed.Shop{Ref: "shop/web:1", Version: version, Mode: mode})
		built, err := image.Build()
		require.NoError(t, err)
		digest, err := built.ConfigName()
		require.NoError(t, err)
		config, err := built.ConfigFile()
		require.NoError(t, err)
		list, err := json.Marshal([]map[string]any{{
			"type": "image", "url": "shop/web:1", "digest": digest, "diff_ids": config.RootFS.DiffIDs, "file": "image.tar",
		}})
		require.NoError(t, err)
		files[release+"/components.json"] = string(list)
		files[release+"/manifests/compose.yaml"] = "services:\n  web:\n    image: shop/web:1\n    stop_grace_period: 1s\n"
		require.NoError(t, os.MkdirAll(filepath.Join(dir, release), 0o755))
		require.NoError(t, bed.WriteArchive(filepath.Join(dir, release, "image.tar"), image))
	}
	writeFixture(t, dir, files)
	before := d.MustState(t)
	path := "/usr/share/mender/app-modules/v1/docker-compose"
	require.Greater(t, conforms(t, d, "1.1", "--fixture", dir, path), 130)
	require.Empty(t, strings.TrimSpace(d.MustRun(t, "docker", "ps", "-aq")))
	require.Equal(t, before.Images, d.MustState(t).Images)
}
