package kube

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// This test is about the node itself, on which the other tests depend.
func TestNodeRuns(t *testing.T) {
	n := Start(t)
	require.Contains(t, n.Kubectl("get", "nodes"), "Ready")
	require.Contains(t, n.Ctr("images", "ls", "-q"), "registry.k8s.io/pause:3.10")
	out := n.Kubectl("get", "--raw", "/readyz")
	require.Equal(t, "ok", strings.TrimSpace(out))
}
