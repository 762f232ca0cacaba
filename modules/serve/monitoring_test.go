package serve

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const monitoring = "../../examples/monitoring/"

// The alerts and the dashboard name metrics that there are.
func TestMonitoringNamesMetrics(t *testing.T) {
	s, _ := shop(t)
	_, metrics := get(t, s, "/metrics")
	for _, name := range []string{"alerts.yml", "dashboard.json"} {
		text, err := os.ReadFile(monitoring + name)
		require.NoError(t, err)
		if strings.HasSuffix(name, ".json") {
			require.True(t, json.Valid(text))
		}
		found := regexp.MustCompile(`mender_app_\w+`).FindAllString(string(text), -1)
		require.Greater(t, len(found), 4, name)
		for _, metric := range found {
			require.Contains(t, metrics, "# TYPE "+metric+" ", name)
		}
	}
}

func findPromtool(t *testing.T) string {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: promtool")
		}
		t.Skip("needs promtool (Debian's package prometheus; make setup)")
	}
	return promtool
}

// Prometheus' own tool finds no fault with the metrics and the alerts.
func TestPromtool(t *testing.T) {
	promtool := findPromtool(t)
	s, _ := shop(t)
	_, metrics := get(t, s, "/metrics")
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(metrics)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(promtool, "check", "rules", monitoring+"alerts.yml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
