package k8s

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{submodules.EnvConfigDir: dir, "KUBECONFIG": "/env", "K8S_NAMESPACE": "shop"}
	read := func(text string) (Settings, error) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigName), []byte(text), 0o644))
		return ReadSettings(func(k string) string { return env[k] })
	}
	s, err := read("")
	require.NoError(t, err)
	require.Equal(t, "/env", s.Kubeconfig)
	require.Equal(t, "shop", s.Namespace)
	require.Equal(t, 10*time.Minute, s.Deadline)
	require.False(t, s.clusterAllowed("ClusterRole"))
	require.False(t, s.namespaceAllowed("x"))

	s, err = read("K8S_KUBECONFIG=/file\nK8S_NAMESPACE=other\nKUBECTL_COMMAND='k3s kubectl'\nK8S_HEALTH_TIMEOUT=90\n" +
		"K8S_ALLOW_CLUSTER_OBJECTS=\"ClusterRole CustomResourceDefinition\"\nK8S_ALLOW_NAMESPACES=a,b\nK8S_TYPO=1\n")
	require.NoError(t, err)
	require.Equal(t, "/file", s.Kubeconfig)
	require.Equal(t, "shop", s.Namespace, "the environment goes before the file")
	require.Equal(t, 90*time.Second, s.Deadline)
	require.True(t, s.clusterAllowed("ClusterRole"))
	require.False(t, s.clusterAllowed("Namespace"))
	require.True(t, s.namespaceAllowed("b"))
	require.False(t, s.namespaceAllowed("ab"))
	require.True(t, s.Asked)
	require.Len(t, s.Unknown, 1)
	require.Contains(t, s.Unknown[0], "K8S_TYPO")

	for _, bad := range []string{"K8S_HEALTH_TIMEOUT=soon\n", "K8S_ALLOW_PULL=perhaps\n", "K8S_RESTART_LIMIT=x\n", "K8S_IMAGE_TARGET=docker://x\n", "K8S_IMAGE_TARGET=registry://\n"} {
		_, err := read(bad)
		require.Error(t, err, bad)
	}
}

// TestPullAllowed: what an author asks for is not enough to make a node pull.
func TestPullAllowed(t *testing.T) {
	for _, c := range []struct {
		setting, image string
		annotated      bool
		want           bool
	}{
		{"", "web:1", true, false},
		{"no", "web:1", true, false},
		{"yes", "web:1", false, true},
		{"registry.example", "registry.example/web:1", true, true},
		{"registry.example", "registry.example/web:1", false, false},
		{"registry.example", "registry.example.org/web:1", true, false},
		{"docker.io/library/redis, other.example:5000/team/", "redis:7", true, true},
		{"docker.io/library/redis, other.example:5000/team/", "redis-evil:7", true, false},
		{"docker.io/library/redis, other.example:5000/team/", "other.example:5000/team/web@sha256:00", true, true},
		{"docker.io/library/redis, other.example:5000/team/", "other.example:5000/team2/web", true, false},
	} {
		s := Settings{Pull: c.setting}
		require.Equal(t, c.want, s.pullAllowed(c.image, c.annotated), "%+v", c)
	}
}

// TestPassword: other users of the device cannot read the registry's password.
func TestPassword(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, ConfigName)
	for text, want := range map[string]os.FileMode{
		"K8S_IMAGE_TARGET=registry://edge:s3cret@registry.example/edge\n":    0o600,
		"K8S_IMAGE_TARGET=registry://registry.example/edge\n":                0o644,
		"K8S_IMAGE_TARGET=registry://edge:s3cret%zz@registry.example/edge\n": 0o600, // a bad one is a password too
		"K8S_IMAGE_TARGET=docker://edge:s3cret@registry.example/edge\n":      0o600,
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		require.NoError(t, os.Chmod(name, 0o644))
		_, err := ReadSettings(func(k string) string { return map[string]string{submodules.EnvConfigDir: dir}[k] })
		if bad := strings.Contains(text, "zz") || strings.Contains(text, "docker:"); bad {
			require.ErrorContains(t, err, "K8S_IMAGE_TARGET")
			require.NotContains(t, err.Error(), "s3cret")
		} else {
			require.NoError(t, err)
		}
		fi, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, want, fi.Mode().Perm(), text)
	}
}

// TestSample holds that the sample configuration names every setting, with its
// default.
func TestSample(t *testing.T) {
	sample, err := os.ReadFile("../../packaging/etc/" + ConfigName)
	require.NoError(t, err)
	source, err := os.ReadFile("settings.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`"(K8S_[A-Z_]+)"`).FindAllSubmatch(source, -1) {
		require.Contains(t, string(sample), "\n#"+string(m[1])+"=")
	}
	read := func(text string) Settings {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigName), []byte(text), 0o644))
		s, err := ReadSettings(func(k string) string { return map[string]string{submodules.EnvConfigDir: dir}[k] })
		require.NoError(t, err)
		return s
	}
	require.Equal(t, read(""), read(strings.ReplaceAll(string(sample), "\n#K8S_", "\nK8S_")))
}

func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, app := range []string{"shop", "Shop", "my shop", "laden ü", strings.Repeat("a", 128), "x-shop", "shop.", "x"} {
		require.Regexp(t, `^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`, marks.Value(app))
		require.Regexp(t, `^mender-app-[a-z0-9-]{1,50}$`, marks.InventoryName(app))
		require.Empty(t, seen[marks.InventoryName(app)], app)
		seen[marks.InventoryName(app)] = app
	}
}

// TestRetry: an API server that does not answer is asked again, less and less
// often, until the time is up.
func TestRetry(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close()) // nothing listens there
	conf := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, ln.Addr()), 0o600))
	var said []string
	c, err := cluster.Connect(conf, "shop", 2*time.Second, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	require.NoError(t, err)
	asked := 0
	ask := func() error {
		asked++
		_, err := c.Disco.ServerVersion()
		return err
	}
	err = c.Retry(context.Background(), ask)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, ln.Addr().String()+" does not answer; is the cluster running?")
	require.Len(t, said, 1, "it is said once")
	// At 0, 0.25, 0.75 and 1.75 seconds; a fixed delay would make it 9.
	require.GreaterOrEqual(t, asked, 2)
	require.LessOrEqual(t, asked, 5)

	ctx, cancel := context.WithTimeoutCause(context.Background(), 300*time.Millisecond, submodules.ErrDeadline)
	defer cancel()
	require.ErrorIs(t, c.Retry(ctx, ask), submodules.ErrDeadline)
}

func TestDress(t *testing.T) {
	got, err := dress([]byte(`{"kind":"A","metadata":{"name":"x","labels":{"a":"b"}}}`), "ns", "shop")
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"A","metadata":{"name":"x","namespace":"ns","labels":{"a":"b","mender-app.io/app":"shop"}}}`, string(got))
	got, err = dress([]byte(`{"metadata":{"name":"x","labels":null}}`), "", "shop")
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"name":"x","labels":{"mender-app.io/app":"shop"}}}`, string(got))
	for _, bad := range []string{`{}`, `{"metadata":3}`, `{"metadata":{"labels":[]}}`} {
		_, err = dress([]byte(bad), "", "shop")
		require.Error(t, err, bad)
	}
}

func TestMadeBy(t *testing.T) {
	set := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "db"},
		"spec":     map[string]any{"volumeClaimTemplates": []any{map[string]any{"metadata": map[string]any{"name": "data"}}}},
	}}
	require.True(t, madeBy(set, "data-db-0"))
	require.True(t, madeBy(set, "data-db-12"))
	for _, other := range []string{"data-db-", "data-db-x", "data-dbx-0", "other-db-0", "data-db-1x"} {
		require.False(t, madeBy(set, other), other)
	}
}

func TestEach(t *testing.T) {
	boom := errors.New("boom")
	err := cluster.Each(context.Background(), 100, func(ctx context.Context, i int) error {
		if i == 50 {
			return boom
		}
		return nil
	})
	require.ErrorIs(t, err, boom)
	require.NoError(t, cluster.Each(context.Background(), 0, nil))
}
