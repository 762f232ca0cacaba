package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExample plays the life of the application in examples/kubernetes: installed
// whole, updated by a delta, a release that fails, a rollback by the client and one
// days later, and a purge.
func TestExample(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	text, err := os.ReadFile("../../examples/kubernetes/manifests/web.yaml")
	require.NoError(t, err)
	release := func(version, image string, options ...string) string {
		manifest := strings.Replace(string(text), "example/web:1", "e2e/web:"+version, 1)
		require.NotEqual(t, string(text), manifest)
		return d.artifact(version, manifest, append(options, "--image="+image)...)
	}
	v1, v2 := d.image("1"), d.image("2")
	d.installs(release("1", v1))
	require.Equal(t, "1", d.says())
	d.installs(release("2", v1+","+v2, "--deep-delta"))
	require.Equal(t, "2", d.says())
	_, err = d.mender("install", release("3", d.image("3", "UNREADY=1")))
	require.Error(t, err)
	require.Equal(t, "2", d.says())
	d.provides("2")
	d.must("install", release("4", d.image("4")))
	require.Equal(t, "4", d.says())
	d.must("rollback")
	require.Equal(t, "2", d.says())
	d.byHand(d.dir+"/bin/mender-app", "rollback", d.app)
	require.Equal(t, "1", d.says())
	d.byHand(d.dir+"/bin/mender-app", "purge", "--force", d.app)
	require.Empty(t, strings.TrimSpace(d.in("get", "deployments,services", "-o", "name")))
}
