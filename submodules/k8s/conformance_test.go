package k8s

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/conformance"
)

func TestConformance(t *testing.T) {
	n := newNode(t)
	bin := t.TempDir()
	// The test binary is the sub-module when it is told so, which its own
	// environment cannot: a script does.
	exe, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bin, Name), []byte("#!/bin/sh\n"+asProgram+"=1 exec "+exe+" \"$@\"\n"), 0o755))
	conf := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(conf, ConfigName), []byte("K8S_HEALTH_TIMEOUT=240\nK8S_STABLE_TIME=1\nK8S_TERMINATE_TIMEOUT=180\nK8S_NAMESPACE="+n.ns+"\n"), 0o644))
	const url = "conform:1"
	release := func(env ...string) conformance.Release {
		img := n.Image(t, "probe:any", nil, append(env, "RUN="+n.ns)...)
		return conformance.Release{
			Components: []submodules.Component{component(url, img)}, Content: map[string]string{url: img.File(t)},
			Manifests: map[string]string{"app.yaml": hasty(deployment("web", url))},
		}
	}
	report, err := conformance.Check(t.Context(), conformance.Options{
		Path: filepath.Join(bin, Name), Kills: 1, Limit: 5 * time.Minute,
		Env: []string{submodules.EnvConfigDir + "=" + conf, "KUBECONFIG=" + n.set.Kubeconfig, "CONTAINERD_ADDRESS=" + n.set.Containerd},
		Fixture: &conformance.Fixture{
			App:  "conform",
			Good: release("VERSION=v1"), Better: release("VERSION=v2"), Bad: release("VERSION=v3", "UNREADY=1"),
		},
	})
	require.NoError(t, err)
	require.Empty(t, report.Failed())
	require.Greater(t, report.Count(conformance.Pass), 130)
}
