package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestServerDown: an API server that stays away refuses an update before
// anything has changed; one that is only away for a while is waited for. It
// runs alone: the server is everyone's.
func TestServerDown(t *testing.T) {
	d := newDevice(t, "K8S_CONNECT_TIMEOUT=20s")
	d.installs(d.artifact("1", manifests("1"), "--image="+d.image("1")))
	before := d.everything()
	second := d.artifact("2", manifests("2"), "--image="+d.image("2"))

	restart := d.KillServer(t)
	out, err := d.mender("install", second)
	require.Error(t, err)
	require.Contains(t, out, "does not answer; is the cluster running?")
	restart()
	require.Eventually(t, func() bool { return d.says() == "1" }, time.Minute, 200*time.Millisecond)
	require.Equal(t, before, d.everything())
	d.at("1")

	restart = d.KillServer(t)
	done := make(chan error, 1)
	go func() {
		out, err = d.mender("install", second)
		done <- err
	}()
	time.Sleep(3 * time.Second)
	restart()
	require.NoError(t, <-done, out)
	require.Contains(t, out, "answers again")
	d.must("commit")
	d.at("2")
}
