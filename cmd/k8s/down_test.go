package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed/kube"
)

// TestServerDown: an API server that stays away refuses an update before
// anything has changed; one that is only away for a while is waited for.
func TestServerDown(t *testing.T) {
	t.Parallel()
	way := kube.Start(t).Proxy(t)
	d := newDevice(t, "K8S_KUBECONFIG="+way.Kubeconfig, "K8S_CONNECT_TIMEOUT=30s")
	d.installs(d.artifact("1", manifests("1"), "--image="+d.image("1")))
	before := d.everything()
	second := d.artifact("2", manifests("2"), "--image="+d.image("2"))

	way.Cut()
	out, err := d.mender("install", second)
	require.Error(t, err)
	require.Contains(t, out, "does not answer; is the cluster running?")
	require.Equal(t, before, d.everything())
	d.at("1")

	refused := way.Refused()
	done := make(chan error, 1)
	go func() {
		out, err = d.mender("install", second)
		done <- err
	}()
	select {
	case <-refused:
	case err := <-done:
		require.NoError(t, err, out)
		t.Fatal("it did not ask the API server")
	}
	way.Restore()
	require.NoError(t, <-done, out)
	d.must("commit")
	d.at("2")
}
