package k8s

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// apiStub is an API server with ConfigMaps, Secrets and Namespaces, by path. It
// knows server-side apply as a merge, which is enough for what owns what.
type apiStub struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	objects  map[string]map[string]any
	managers map[string]string // path → who applied it last
	refuse   string            // the answer to each Secret that is applied, if it is set
}

func newAPIStub(t *testing.T) *apiStub {
	a := &apiStub{t: t, objects: map[string]map[string]any{}, managers: map[string]string{}}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	a.url = srv.URL
	a.put("/api/v1/namespaces/default", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default","uid":"d"}}`)
	return a
}

func (a *apiStub) put(path, text string) {
	var o map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(text), &o))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[path] = o
}

// refuseSecrets sets the answer to each Secret that is applied; "" accepts them.
func (a *apiStub) refuseSecrets(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = answer
}

func (a *apiStub) get(path string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[path]
}

// manager is who applied the object last.
func (a *apiStub) manager(path string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.managers[path]
}

// module is a sub-module of the stub, with more of the settings.
func (a *apiStub) module(more func(*Settings)) caller {
	config := filepath.Join(a.t.TempDir(), "kubeconfig")
	require.NoError(a.t, os.WriteFile(config, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: "+a.url+"}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\ncurrent-context: a\n"), 0o600))
	set := Settings{Kubeconfig: config, Cluster: "no", Containerd: "/nonexistent", Deadline: 5 * time.Second, Connect: 2 * time.Second, TerminateFor: time.Second}
	if more != nil {
		more(&set)
	}
	return caller{New(func() (Settings, error) { return set, nil })}
}

func (a *apiStub) request(app, manifests string) submodules.Request {
	dir := a.t.TempDir()
	require.NoError(a.t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(manifests), 0o600))
	return submodules.Request{App: app, Dir: dir, TempDir: a.t.TempDir(), Components: []submodules.Component{}, Log: func(l string) { a.t.Log(app + ": " + l) }}
}

func (a *apiStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	path := r.URL.Path
	switch path {
	case "/api":
		reply(map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
		return
	case "/apis":
		reply(map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
		return
	case "/api/v1":
		var kinds []any
		for name, kind := range map[string]string{
			"configmaps": "ConfigMap", "secrets": "Secret", "namespaces": "Namespace", "nodes": "Node", "serviceaccounts": "ServiceAccount",
			"persistentvolumeclaims": "PersistentVolumeClaim", "pods": "Pod", "services": "Service",
		} {
			kinds = append(kinds, map[string]any{"name": name, "kind": kind, "namespaced": kind != "Namespace" && kind != "Node", "verbs": []string{"get", "list", "patch", "delete"}})
		}
		reply(map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds})
		return
	}
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	switch r.Method {
	case http.MethodGet:
		if o := a.objects[path]; o != nil {
			reply(o)
			return
		}
		if len(parts) == 1 || len(parts) == 3 {
			reply(map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{}, "items": a.list(path, parts[len(parts)-1], r.URL.Query().Get("labelSelector"))})
			return
		}
		w.WriteHeader(http.StatusNotFound)
		reply(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	case http.MethodPatch:
		if a.refuse != "" && parts[len(parts)-2] == "secrets" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(a.refuse))
			return
		}
		var o map[string]any
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		now := mergePatch(copyJSON(a.objects[path]), o)
		meta := now["metadata"].(map[string]any)
		meta["uid"], meta["name"] = "u"+path, parts[len(parts)-1]
		if r.URL.Query().Get("dryRun") == "" {
			a.objects[path], a.managers[path] = now, r.URL.Query().Get("fieldManager")
		}
		reply(now)
	case http.MethodDelete:
		delete(a.objects, path)
		reply(map[string]any{"kind": "Status", "status": "Success"})
	}
}

func (a *apiStub) list(path, resource, selector string) []any {
	items := []any{}
	for at, o := range a.objects {
		if !strings.Contains(at, "/"+resource+"/") || strings.Count(path, "/") > 3 && !strings.HasPrefix(at, path+"/") {
			continue
		}
		labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
		key, value, valued := strings.Cut(selector, "=")
		if _, has := labels[key]; selector != "" && (!has || valued && fmt.Sprint(labels[key]) != value) {
			continue
		}
		items = append(items, o)
	}
	return items
}

func mergePatch(a, b map[string]any) map[string]any {
	for k, v := range b {
		old, isMap := a[k].(map[string]any)
		switch m, ok := v.(map[string]any); {
		case v == nil:
			delete(a, k)
		case ok && isMap:
			a[k] = mergePatch(old, m)
		default:
			a[k] = v
		}
	}
	return a
}

func copyJSON(o map[string]any) map[string]any {
	data, _ := json.Marshal(o)
	c := map[string]any{}
	_ = json.Unmarshal(data, &c)
	if c == nil {
		c = map[string]any{}
	}
	return c
}
