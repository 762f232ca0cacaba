package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/stretchr/testify/require"
)

// document is a dashboard in the form that Grafana has read since version 5, and still does.
type document = dashboard.Dashboard //lint:ignore SA1019 the new form needs Grafana 12

// faults are what Grafana's schema finds wrong with a dashboard. The error is also there,
// without a text, if there is nothing.
func faults(t *testing.T, text []byte) string {
	t.Helper()
	var d document
	err := d.UnmarshalJSONStrict(text)
	require.Error(t, err)
	return err.Error()
}

// panels reads the dashboard as Grafana's own schema demands it, and returns its panels.
func panels(t *testing.T) (list []*dashboard.Panel) {
	t.Helper()
	grafana := cog.NewRuntime()
	grafana.RegisterPanelcfgVariant(stat.VariantConfig())
	grafana.RegisterPanelcfgVariant(table.VariantConfig())
	grafana.RegisterPanelcfgVariant(timeseries.VariantConfig())
	grafana.RegisterDataqueryVariant(prometheus.VariantConfig())
	text, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	require.Empty(t, faults(t, text))
	for _, wrong := range [][2]string{{`"panels"`, `"panel"`}, {`"gridPos"`, `"grid"`}, {`"expr"`, `"expression"`}, {`"refresh": "1m"`, `"refresh": 1`}} {
		require.NotEmpty(t, faults(t, bytes.Replace(text, []byte(wrong[0]), []byte(wrong[1]), 1)), "the schema takes anything: %s", wrong[1])
	}
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	require.NoError(t, d.Validate())
	require.NotEmpty(t, *d.Uid)
	for _, p := range d.Panels {
		require.NotNil(t, p.Panel)
		list = append(list, p.Panel)
	}
	require.NotEmpty(t, list)
	return list
}

// Grafana is not needed for this: its schema accepts the dashboard, the types of panels
// are known, no panel lies on another one or beside the grid, and each asks Prometheus
// for series with the labels that its legend names.
func TestDashboard(t *testing.T) {
	s, _ := shop(t)
	_, metrics := get(t, s, "/metrics")
	taken, ids := map[string]string{}, map[uint32]bool{}
	for _, p := range panels(t) {
		title := *p.Title
		require.Contains(t, []string{"stat", "table", "timeseries"}, p.Type, title)
		require.False(t, ids[*p.Id], title)
		ids[*p.Id] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, uint32(24), title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := fmt.Sprint(p.GridPos.X+x, " ", p.GridPos.Y+y)
				require.Empty(t, taken[cell], title)
				taken[cell] = title
			}
		}
		require.NotEmpty(t, p.Targets, title)
		for _, target := range p.Targets {
			query, ok := target.(*prometheus.Dataquery)
			require.True(t, ok, "%s: %T", title, target)
			for _, name := range legendNames(*query.LegendFormat) {
				if name != "instance" { // Prometheus adds it
					require.Regexp(t, `(?m)^`+metricOf(query.Expr)+`\{[^}]*\b`+name+`="`, metrics, title)
				}
			}
		}
	}
}

// legendNames are the labels that a legend names.
func legendNames(legend string) (names []string) {
	for _, m := range regexp.MustCompile(`{{\s*(\w+)\s*}}`).FindAllStringSubmatch(legend, -1) {
		names = append(names, m[1])
	}
	return names
}

// metricOf is the metric that an expression is about.
func metricOf(expr string) string { return regexp.MustCompile(`mender_app_\w+`).FindString(expr) }

// Prometheus' own tool finds no fault with what the panels ask, and has an answer.
func TestPromtoolAnswersTheDashboard(t *testing.T) {
	promtool := findPromtool(t)
	s, _ := shop(t)
	_, metrics := get(t, s, "/metrics")
	var rules, series, asks strings.Builder
	for i, p := range panels(t) {
		for _, target := range p.Targets {
			expr := target.(*prometheus.Dataquery).Expr
			fmt.Fprintf(&rules, "  - record: panel%d\n    expr: %q\n", i, expr)
			fmt.Fprintf(&asks, "  - expr: 'count(panel%d) > bool 0'\n    eval_time: 1m\n    exp_samples: [{labels: '{}', value: 1}]\n", i)
		}
	}
	for line := range strings.Lines(metrics) {
		name, value, ok := cut(line)
		if ok {
			value = cmp.Or(map[string]string{"mender_app_application_healthy": "0"}[metricOf(name)], value)
			fmt.Fprintf(&series, "  - series: '%s'\n    values: '%s+0x5'\n", name, value)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte("groups:\n- name: panels\n  rules:\n"+rules.String()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test.yml"),
		[]byte("rule_files: [rules.yml]\ntests:\n- interval: 1m\n  input_series:\n"+series.String()+"  promql_expr_test:\n"+asks.String()), 0o644))
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// cut is the series and the value of a line of metrics.
func cut(line string) (series, value string, ok bool) {
	line = strings.TrimSpace(line)
	if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
		return line[:i], line[i+1:], true
	}
	return "", "", false
}
