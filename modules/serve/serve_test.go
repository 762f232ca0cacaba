package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/reconcile"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// module is a sub-module.
type module struct {
	asked atomic.Int32
	wait  chan struct{} // it answers when this is closed; nil: at once
	err   error
	image string // of its service
}

func (m *module) Describe(context.Context) (submodules.Info, error) {
	return submodules.Info{Features: []string{submodules.FeatureStatus, submodules.FeatureLogs}}, nil
}
func (m *module) Alive(context.Context, submodules.Request) (bool, error)   { return true, nil }
func (m *module) Healthy(context.Context, submodules.Request) (bool, error) { return true, nil }
func (m *module) Status(ctx context.Context, _ submodules.Request) (submodules.Status, error) {
	m.asked.Add(1)
	if m.wait != nil {
		select {
		case <-m.wait:
		case <-ctx.Done():
			return submodules.Status{}, ctx.Err()
		}
	}
	at := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	return submodules.Status{Alive: true, Healthy: true, Services: []submodules.Service{
		{Name: "web", Instance: `shop-"web"-1`, Health: submodules.Healthy, Image: m.image, Since: at, Restarts: 2, Failure: "exited", Failed: at, Said: "on fire"},
	}}, m.err
}
func (m *module) Statuses(ctx context.Context, r submodules.Request, apps []string, each func(string, submodules.Status)) error {
	m.asked.Add(1)
	for _, app := range apps {
		each(app, submodules.Status{Alive: true, Healthy: true})
	}
	return m.err
}
func (m *module) Render(context.Context, submodules.Request) ([]byte, error) { return nil, nil }

func (m *module) Logs(_ context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error {
	for i := range *r.Lines {
		if err := each(submodules.LogLine{Service: "web", Instance: "shop-web-1", At: time.Unix(int64(i), 0).UTC(), Stream: "stdout", Text: strings.Repeat("x", 10<<10)}); err != nil {
			return err
		}
	}
	return m.err
}

// shop is a server for a device with the application shop, with a history, and an open
// deployment.
func shop(t *testing.T) (*Server, *module) {
	t.Helper()
	m := &module{}
	s := &Server{
		Store:  store.At(t.TempDir()),
		Viewer: &view.Viewer{Find: func(string) (view.Submodule, error) { return m, nil }},
		Clock:  func() hold.Clock { return hold.Clock{Now: time.Now()} }, Version: "1.0",
		Log: slog.New(slog.DiscardHandler), AppLocks: t.TempDir(),
	}
	s.Viewer.Staging = &staging.Area{Store: s.Store}
	s.Disks = map[string]string{"store": s.Store.Dir()}
	require.NoError(t, s.Store.Prepare())
	a, err := s.Store.Create("shop")
	require.NoError(t, err)
	for _, id := range []string{"1-shop-1", "2-shop-2"} {
		require.NoError(t, a.PutRelease(&store.Release{ID: id, ArtifactName: id[2:], Version: id[:1], Orchestrator: "fake", Platform: "linux/arm/v7",
			Env: map[string]string{"COLOUR": "red"}, Created: time.Now(), Components: []store.Component{{Type: "docker-image", URL: "web:" + id[:1], Digest: digest.Of([]byte(id))}}}))
	}
	a.Current = "1-shop-1"
	require.NoError(t, a.Point("1-shop-1"))
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for i, status := range []string{store.StatusInstalled, store.StatusRolledBack, store.StatusRefused} {
		r := store.Record{
			ID: fmt.Sprintf("%d-shop", i+1), Application: "shop", ArtifactName: fmt.Sprint("shop-", i+1), To: "1-shop-1", Status: status, Driver: "mender",
			Asked: &store.Asked{How: store.AskedByHand, User: "anna"}, Started: start.Add(time.Duration(i) * time.Hour), Measured: &store.Measured{Received: 10, Written: 20, Downtimes: []store.Downtime{{Service: "web", Seconds: 1.25}}},
			Changed: &store.Changed{Components: []store.Change{{Type: "docker-image", URL: "web:1", To: digest.Of(nil)}}},
		}
		r.Ended = r.Started.Add(90 * time.Second)
		r.Steps = []store.Step{{Phase: "downloading", At: r.Started, End: r.Ended, Outcome: store.OutcomeDone}}
		if status != store.StatusInstalled {
			r.Error, r.Steps[0].Error = "web is unhealthy", "web is unhealthy"
		}
		require.NoError(t, s.Store.AddHistory(r))
	}
	require.NoError(t, s.Store.AddLog("shop", 3, store.LogEntry{At: start, Step: "downloading", Level: "info", Text: "loading"}))
	a.Deployment = &store.Deployment{ID: "4", ArtifactName: "shop-2", From: "1-shop-1", To: "2-shop-2", Phase: "loaded", Started: start, Updated: start, Number: 4,
		Steps: []store.Step{{Phase: "loaded", At: start}}}
	require.NoError(t, a.Save())
	return s, m
}

// get asks for a path, and returns the answer with its body.
func get(t *testing.T, s *Server, path string, head ...string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	req.Host = "localhost"
	for i := 0; i < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler(t.Context()).ServeHTTP(w, req)
	r := w.Result()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r, string(body)
}

// Each answer has what the description says, and nothing else.
func TestAnswersAreAsDescribed(t *testing.T) {
	s, _ := shop(t)
	require.NoError(t, s.Store.SetHold(store.Hold{Reason: "new kernel", Since: time.Now(), Seconds: 60, Asked: &store.Asked{How: store.AskedByHand}}))
	queue := &reconcile.Queue{Store: s.Store}
	require.NoError(t, queue.Add(t.Context(), reconcile.Task{Application: "shop", Work: policy.Work{Do: policy.Replace, Artifact: "shop-3"}, Event: policy.Event{Name: "bundles", Fields: map[string]string{"a": "b"}}, Attempts: 2, Next: time.Now(), Error: "no"}))
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   object
			}
			Responses map[string]struct {
				Content map[string]struct{ Schema object }
			}
		}
		Components struct{ Schemas map[string]object }
	}
	require.NoError(t, json.Unmarshal(openAPI, &doc))
	values := map[string]string{"since": "2026-11-01", "until": "1h", "cursor": "9", "limit": "2", "status": "installed,refused", "service": "web", "tail": "3", "app": "shop"}
	for path, ops := range doc.Paths {
		op, found := ops["get"]
		require.Len(t, ops, 1)
		if !found || path == "/v1/events" || strings.HasPrefix(path, "/v1/actions/") {
			continue // TestActions, TestEvents
		}
		url := strings.NewReplacer("{app}", "shop", "{number}", "3").Replace(path)
		r, body := get(t, s, url)
		require.Equal(t, 200, r.StatusCode, body)
		kinds := slices.Collect(maps.Keys(op.Responses["200"].Content))
		require.Equal(t, kinds[0], strings.SplitN(r.Header.Get("Content-Type"), ";", 2)[0])
		if kinds[0] == "application/json" {
			var v any
			require.NoError(t, json.Unmarshal([]byte(body), &v))
			for _, wrong := range mismatches(op.Responses["200"].Content[kinds[0]].Schema, v, doc.Components.Schemas, url) {
				t.Error(wrong)
			}
		}
		for _, p := range op.Parameters {
			if p.In == "query" {
				r, body := get(t, s, url+"?"+p.Name+"="+values[p.Name])
				require.Equal(t, 200, r.StatusCode, "%s: %s", p.Name, body)
				if p.Schema["type"] == "integer" || strings.HasPrefix(p.Name, "s") && p.Name != "service" || p.Name == "until" {
					r, body = get(t, s, url+"?"+p.Name+"=-x")
					require.Equal(t, 400, r.StatusCode, "%s: %s", p.Name, body)
					require.Contains(t, body, p.Name)
				}
			}
		}
		r, _ = get(t, s, url, "If-None-Match", `"other", `+r.Header.Get("ETag"))
		if path != "/" && path != "/v1/queue" && path != "/metrics" { // they tell of this moment
			require.Equal(t, 304, r.StatusCode, url)
		}
		r, body = get(t, s, url+"?unknown=1")
		require.Equal(t, 400, r.StatusCode)
		require.Contains(t, body, "unknown")
	}
}

// mismatches compares a value with its description.
func mismatches(schema object, v any, schemas map[string]object, at string) (list []string) {
	if ref, ok := schema["$ref"].(string); ok {
		schema = schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
	kinds, many := schema["type"].([]any)
	if !many && schema["type"] != nil {
		kinds = []any{schema["type"]}
	}
	kind := map[bool]string{true: "null"}[v == nil]
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		properties, _ := schema["properties"].(object)
		rest, _ := schema["additionalProperties"].(object)
		for name, value := range v {
			inner, known := properties[name].(object)
			if !known && (rest != nil || properties == nil) {
				inner, known = rest, true
			}
			if !known {
				list = append(list, at+"."+name+" is not described")
				continue
			}
			list = append(list, mismatches(inner, value, schemas, at+"."+name)...)
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				list = append(list, at+"."+name.(string)+" is missing")
			}
		}
	case []any:
		kind = "array"
		items, _ := schema["items"].(object)
		for i, value := range v {
			list = append(list, mismatches(items, value, schemas, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		kind = "integer"
		if v != math.Trunc(v) || slices.Contains(kinds, "number") {
			kind = "number"
		}
	}
	if len(kinds) > 0 && !slices.Contains(kinds, any(kind)) {
		list = append(list, fmt.Sprintf("%s is %s, not %v", at, kind, kinds))
	}
	return list
}

// Pages follow each other by the header Link, and the filters choose.
func TestDeploymentsInPages(t *testing.T) {
	s, _ := shop(t)
	var numbers []int64
	for next := "/v1/apps/shop/deployments?limit=2"; next != ""; {
		r, body := get(t, s, next)
		var page []store.Record
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		for _, d := range page {
			numbers = append(numbers, d.Number)
		}
		next, _, _ = strings.Cut(strings.TrimPrefix(r.Header.Get("Link"), "<"), ">")
	}
	require.Equal(t, []int64{3, 2, 1}, numbers)
	_, body := get(t, s, "/v1/apps/shop/deployments?status=refused,failed")
	require.Equal(t, 1, strings.Count(body, `"number"`))
	_, body = get(t, s, "/v1/apps/shop/deployments?until=2026-11-20T12:30:00Z")
	require.Contains(t, body, `"number":1`)
	_, body = get(t, s, "/v1/apps/shop/logs?tail=1000")
	require.Less(t, len(body), 2*maxLog)
	require.Contains(t, body, "00:16:39Z", "the newest line")
}

// What goes wrong is answered with an error, and its status.
func TestProblems(t *testing.T) {
	s, m := shop(t)
	for path, want := range map[string]int{
		"/v1/apps/none": 404, "/v1/apps/..%2f": 404, "/v1/apps/none/releases": 404, "/v1/apps/none/deployments": 404, "/v1/apps/none/logs": 404,
		"/v1/apps/shop/deployments/9": 404, "/v1/apps/shop/deployments/x": 400, "/v1/apps/shop/deployments/9/logs": 404, "/v2": 404,
		"/v1/apps?%zz": 400, "/v1/apps/shop/deployments?limit=1&limit=2": 400,
	} {
		r, body := get(t, s, path)
		require.Equal(t, want, r.StatusCode, path)
		var p Problem
		require.NoError(t, json.Unmarshal([]byte(body), &p), path)
		require.Equal(t, want, p.Status)
		require.NotEmpty(t, p.Error)
	}
	m.err = submodules.Mark(fmt.Errorf("no engine answers"), submodules.ErrRequirement)
	r, body := get(t, s, "/v1/apps/shop/logs")
	require.Equal(t, 503, r.StatusCode)
	require.Contains(t, body, "no engine answers")
	r, body = get(t, s, "/v1/apps")
	require.Equal(t, 200, r.StatusCode, "the store can be read")
	require.Contains(t, body, `"health":"unknown"`)
	require.Contains(t, body, "no engine answers")
	_, body = get(t, s, "/metrics")
	require.Contains(t, body, `mender_app_application_health_known{application="shop"} 0`)

	req := httptest.NewRequest(http.MethodDelete, "/v1/apps/shop", nil)
	w := httptest.NewRecorder()
	s.Handler(t.Context()).ServeHTTP(w, req)
	require.Equal(t, 405, w.Code)
}

// A token is needed where there is one, and a name of another host is refused: a web
// site can give its own name the address of this device.
func TestStrangers(t *testing.T) {
	s, _ := shop(t)
	for host, want := range map[string]int{"localhost": 200, "127.0.0.1:80": 200, "[::1]:80": 200, "192.0.2.1": 200, "attacker.example": 403, "attacker.example:80": 403, "attacker": 403, "attacker:80": 403, "localhost.": 403, "": 403, "2130706433": 403, "0x7f000001": 403} {
		req := httptest.NewRequest(http.MethodGet, "/v1/queue", nil)
		req.Host = host
		w := httptest.NewRecorder()
		s.Handler(t.Context()).ServeHTTP(w, req)
		require.Equal(t, want, w.Code, host)
	}
	s.Token = "0123456789abcdef"
	for token, want := range map[string]int{"": 401, "Bearer ": 401, "Bearer 0123456789abcdeg": 401, "Basic 0123456789abcdef": 401, "Bearer 0123456789abcdef": 200} {
		r, body := get(t, s, "/v1/apps", "Authorization", token)
		require.Equal(t, want, r.StatusCode, "%s: %s", token, body)
	}
	r, _ := get(t, s, "/healthz")
	require.Equal(t, 200, r.StatusCode, "it says nothing of the device")
	r, _ = get(t, s, "/metrics")
	require.Equal(t, 401, r.StatusCode)
}

// Many who ask for the same cost one question to the sub-module. A change of the store
// is seen at once.
func TestOneQuestionForAll(t *testing.T) {
	s, m := shop(t)
	m.wait = make(chan struct{})
	server := httptest.NewServer(s.Handler(t.Context()))
	defer server.Close()
	answers := make(chan string)
	const many = 20
	for range many {
		go func() {
			r, err := http.Get(server.URL + "/v1/apps/shop")
			if err != nil {
				answers <- err.Error()
				return
			}
			defer r.Body.Close()
			body, _ := io.ReadAll(r.Body)
			answers <- string(body)
		}()
	}
	require.Eventually(t, func() bool { return m.asked.Load() > 0 }, 10*time.Second, time.Millisecond)
	close(m.wait)
	for range many {
		require.Contains(t, <-answers, `"health":"healthy"`)
	}
	require.EqualValues(t, 1, m.asked.Load())
	a, err := s.Store.App("shop")
	require.NoError(t, err)
	a.Deployment = nil
	require.NoError(t, a.Save())
	r, err := http.Get(server.URL + "/v1/apps/shop")
	require.NoError(t, err)
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	require.Contains(t, string(body), `"state":"installed"`)
	require.EqualValues(t, 2, m.asked.Load())
}

// The metrics are in Prometheus' text format, with labels that cannot break out.
func TestMetrics(t *testing.T) {
	s, _ := shop(t)
	_, body := get(t, s, "/metrics")
	for _, want := range []string{
		"# TYPE mender_app_deployments_total counter\nmender_app_deployments_total{application=\"shop\",status=\"installed\"} 1\n",
		`mender_app_application_info{application="shop",release="1-shop-1",artifact="shop-1",version="1",orchestrator="fake"} 1`,
		`mender_app_application_healthy{application="shop"} 1`,
		`mender_app_service_restarts{application="shop",service="web",instance="shop-\"web\"-1"} 2`,
		`mender_app_deployments_total{application="shop",status="rolled-back"} 1`,
		`mender_app_last_success_timestamp_seconds{application="shop"} 1.76364009e+09`,
		`mender_app_last_deployment_duration_seconds{application="shop"} 90`,
		`# HELP mender_app_last_deployment_written_bytes Bytes that all programs wrote to the disks of the store and the engine during the last deployment.`,
		`mender_app_last_deployment_written_bytes{application="shop"} 20`,
		`mender_app_last_deployment_downtime_seconds{application="shop",service="web"} 1.25`,
		"mender_app_queue_tasks{state=\"new\"} 0\n", "mender_app_open_deployments 1\n", "mender_app_held 0\n", `mender_app_free_bytes{disk="store"} `,
	} {
		if strings.Contains(want, "1.76364009e+09") {
			want = want[:strings.LastIndexByte(want, ' ')]
		}
		require.Contains(t, body, want)
	}
	require.NoError(t, s.Store.AddHistory(store.Record{ID: "4", Application: "shop", Status: store.StatusInstalled, Started: time.Now(), Ended: time.Now()}))
	_, body = get(t, s, "/metrics")
	require.Contains(t, body, `mender_app_deployments_total{application="shop",status="installed"} 2`)
}

// events reads a stream until it has so many events.
func events(t *testing.T, r *bufio.Scanner, n int) (ids []string, list []view.Event) {
	t.Helper()
	for len(list) < n && r.Scan() {
		if id, ok := strings.CutPrefix(r.Text(), "id: "); ok {
			ids = append(ids, id)
		}
		if data, ok := strings.CutPrefix(r.Text(), "data: "); ok {
			var e view.Event
			require.NoError(t, json.Unmarshal([]byte(data), &e))
			list = append(list, e)
		}
	}
	require.Len(t, list, n)
	return ids, list
}

// A stream has what happens from now on; one who was away gets what was missed.
func TestEvents(t *testing.T) {
	s, _ := shop(t)
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(s.Handler(ctx))
	defer server.Close()
	defer cancel() // streams end
	open := func(path, last string) *bufio.Scanner {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("Last-Event-ID", last)
		r, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { r.Body.Close() })
		require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
		lines := bufio.NewScanner(r.Body)
		require.True(t, lines.Scan())
		require.Equal(t, "retry: 2000", lines.Text())
		return lines
	}
	stream := open("/v1/events?app=shop", "")
	a, err := s.Store.App("shop")
	require.NoError(t, err)
	step := func(phase store.Phase) {
		t.Helper()
		a.Deployment.Phase = phase
		a.Deployment.Steps = append(a.Deployment.Steps, store.Step{Phase: phase, At: time.Now()})
		require.NoError(t, a.Save())
	}
	step("installing")
	step("installed")
	ids, list := events(t, stream, 2)
	require.Equal(t, "installing", list[0].Phase)
	require.Equal(t, "installed", list[1].Phase)
	step("committed")
	_, list = events(t, open("/v1/events", ids[0]), 2)
	require.Equal(t, "installed", list[0].Phase)
	require.Equal(t, "committed", list[1].Phase)
	open("/v1/events", "nonsense")
}
