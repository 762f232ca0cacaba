package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Projects with what people write in Compose files are on a device what plain Compose makes
// of them, keep their data, leave nothing, and change as check says.
func TestKindsOfProjects(t *testing.T) {
	if testing.Short() {
		t.Skip("takes projects through their whole life; left out of -short")
	}
	bed.Require(t)
	projects, err := find([]string{"projects"})
	require.NoError(t, err)
	require.Len(t, projects, 3)
	b, err := newBench(false)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	for i, p := range projects {
		r, err := b.project("kind"+string(rune('a'+i)), p)
		require.NoError(t, err, p)
		require.Positive(t, r.keeps, r.line())
		r.project, r.keeps = p, 0
		require.Equal(t, row{project: p}, r)
		require.Equal(t, p+": as plain Compose", r.line())
	}
}

func TestTable(t *testing.T) {
	text := table([]row{
		{project: "a", keeps: 2},
		{project: "b", refused: "no", plain: "no"},
		{project: "c", refused: "it has\n build"},
		{project: "d", failed: "oh"},
		{project: "e", keeps: 1, wrong: []string{"web"}},
	})
	require.Contains(t, text, "| plain Compose runs | 4 |\n| of these app-gen accepts | 3 |\n| of these deployed | 2 |")
	require.Contains(t, text, "| 2 of 3 |")
	require.Contains(t, text, "refused: c: it has build\n")
	list, err := find([]string{filepath.Join("projects", "kinds")})
	require.NoError(t, err)
	require.Equal(t, []string{"projects/kinds"}, list)
}

// A set is a directory with manifests; its images are those of its containers.
func TestSets(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"web/deployment.yaml":    "apiVersion: apps/v1\nkind: Deployment\n",
		"web/notes.yaml":         "a: [b\n",
		"compose/compose.yaml":   "services: {}\n",
		"chart/templates/x.yaml": "{{ if .Values.x }}\n",
		".hidden/object.yaml":    "apiVersion: v1\nkind: Pod\n",
		"base/kustomization.yml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	sets, err := findSets([]string{dir})
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "base"), filepath.Join(dir, "web")}, sets)

	m := modelOf([]byte(`{"kind": "Pod", "spec": {"containers": [{"name": "a", "image": "a:1", "command": ["/run/it", "x"], "livenessProbe": {"exec": {"command": ["ready"]}}}]}}
{"kind": "List", "items": [{"kind": "Deployment", "spec": {"template": {"spec": {"initContainers": [{"name": "b", "image": "b:1"}]}}}}]}`))
	require.Equal(t, []string{"a:1", "b:1"}, m.images())
	require.Equal(t, []string{"bin/bash", "bin/sh", "run/it", "usr/bin/ready"}, m.programs())

	text := setTable([]setRow{{}, {plain: "no"}, {refused: "latest"}, {checked: "no"}, {checked: "no", warned: true}, {failed: "oh"}, {left: "a claim"}})
	require.Contains(t, text, "| found | 7 |\n| Kubernetes takes | 6 |\n| of these app-gen accepts | 5 |\n| of these the device's check accepts | 3 |\n| of these deployed | 2 |")
	require.Contains(t, text, "without a word, and refused by check | 1 |")
	require.Equal(t, "x: left over: a claim", setRow{set: "x", left: "a claim"}.line())
	require.Equal(t, "x: deployed", setRow{set: "x"}.line())
}
