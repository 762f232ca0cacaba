package k8s

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// ENGINE tells the API server's version as it says it itself.
func TestEngine(t *testing.T) {
	var silent atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" || silent.Load() {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"major":"1","minor":"29+","gitVersion":"v1.29.4+k3s1"}`)
	}))
	defer server.Close()
	conf := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, server.URL), 0o600))
	m := caller{New(func() (Settings, error) { return Settings{Kubeconfig: conf, Connect: 2 * time.Second}, nil })}
	require.Contains(t, m.o.Features(), submodules.FeatureEngine)
	e, err := m.Engine(t.Context(), submodules.Request{})
	require.NoError(t, err)
	require.Equal(t, submodules.Engine{Name: "kubernetes", Version: "v1.29.4+k3s1"}, e)

	silent.Store(true)
	_, err = m.Engine(t.Context(), submodules.Request{})
	require.ErrorIs(t, err, submodules.ErrRequirement)
}
