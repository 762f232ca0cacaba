package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

const shopManifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "shop:1", env: [{name: A, value: a}, {name: B, value: b}], envFrom: [{configMapRef: {name: settings}}]}
      - {name: side, image: "side:1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, annotations: {mender-app.io/values: "true"}}
data: {LANGUAGE: en, COLOUR: red}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fixed}
data: {LANGUAGE: en}
---
apiVersion: example.com/v1
kind: Till
metadata: {name: till}
spec: {drawers: [1, 2], light: on}
`

func readObjects(t *testing.T, text string) []manifest.Object {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text), 0o600))
	objects, err := manifest.Read(dir, nil)
	require.NoError(t, err)
	return objects
}

// object returns an object as a tree.
func object(t *testing.T, objects []manifest.Object, kind, name string) map[string]any {
	for _, o := range objects {
		if o.Kind == kind && o.Name == name {
			var tree map[string]any
			require.NoError(t, yaml.Unmarshal(o.JSON, &tree))
			return tree
		}
	}
	require.Fail(t, "no such object", "%s/%s", kind, name)
	return nil
}

func patches(texts ...string) (list []submodules.Override) {
	for i, text := range texts {
		list = append(list, submodules.Override{Name: fmt.Sprintf("%d.yaml", i), Text: text})
	}
	return list
}

const webManifests = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"

func TestOverrides(t *testing.T) {
	c := manifestChanges{Overrides: patches(
		webManifests+"spec: {replicas: 3, template: {spec: {containers: [{name: web, env: [{name: B, value: x}]}, {name: side, $patch: delete}]}}}",
		webManifests+"spec: {replicas: 2}\n---\napiVersion: example.com/v1\nkind: Till\nmetadata: {name: till}\nspec: {drawers: [3], light: null}",
	)}
	shipped := readObjects(t, shopManifests)
	got, err := c.Apply(shipped, t.Logf)
	require.NoError(t, err)
	require.Equal(t, readObjects(t, shopManifests), shipped, "what was given stays")

	deployment := object(t, got, "Deployment", "web")
	spec := deployment["spec"].(map[string]any)
	require.EqualValues(t, 2, spec["replicas"], "the last override wins")
	containers := spec["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	require.Len(t, containers, 1)
	require.Equal(t, "shop:1", containers[0].(map[string]any)["image"])
	require.Equal(t, []any{
		map[string]any{"name": "A", "value": "a"}, map[string]any{"name": "B", "value": "x"},
	}, containers[0].(map[string]any)["env"], "a list with keys is merged")
	require.Equal(t, map[string]any{"drawers": []any{3.0}}, object(t, got, "Till", "till")["spec"], "a kind that Kubernetes does not define has JSON merge patches")
	for _, o := range got {
		if o.Kind == "Deployment" {
			require.Equal(t, []string{"0.yaml", "1.yaml"}, o.Overrides)
		}
	}
}

func TestRefusedChanges(t *testing.T) {
	for text, want := range map[string]string{
		"":      "is empty",
		"spec:": "apiVersion and kind are needed",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: wbe}":                       `line 1: the release has no Deployment/wbe`,
		"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: web}":                  "the manifest has apiVersion apps/v1",
		webManifests + "spec: {template: {spec: {containers: [{name: web, image: evil}]}}}":  "names the image evil",
		webManifests + "spec: {template: {spec: {initContainers: [{name: x, image: new}]}}}": "spec.template.spec.initContainers[0] names the image new",
		webManifests + "$patch: delete":                                                      "cannot remove or rename",
		webManifests + "spec: {replicas: 1}\n---\n" + webManifests:                           "is in 0.yaml:1 already",
		webManifests + "spec: {template: {spec: {containers: {}}}}":                          "line 1: Deployment/web: ",
		webManifests + "spec: {replicas: 1}\nspec: {replicas: 2}":                            `"spec" already set`,
		"apiVersion: v1\nkind: List\nitems: [{kind: Other}]":                                 "item 1",
	} {
		_, err := manifestChanges{Overrides: patches(text)}.Apply(readObjects(t, shopManifests), t.Logf)
		require.ErrorIs(t, err, submodules.ErrContent, text)
		require.ErrorContains(t, err, want)
	}
}

func TestValues(t *testing.T) {
	apply := func(values map[string]string) []manifest.Object {
		got, err := manifestChanges{Values: values}.Apply(readObjects(t, shopManifests), t.Logf)
		require.NoError(t, err)
		return got
	}
	mark := func(objects []manifest.Object) string {
		var marked []string
		for i, value := range valuesOf(objects) {
			if value != "" {
				require.Equal(t, "Deployment", objects[i].Kind)
				marked = append(marked, value)
			}
		}
		require.Len(t, marked, 1)
		return marked[0]
	}
	german := apply(map[string]string{"LANGUAGE": "de", "OTHER": "x"})
	require.Equal(t, map[string]any{"LANGUAGE": "de", "COLOUR": "red"}, object(t, german, "ConfigMap", "settings")["data"], "no entry is added")
	require.Equal(t, map[string]any{"LANGUAGE": "en"}, object(t, german, "ConfigMap", "fixed")["data"], "it does not ask for values")
	require.Regexp(t, `^settings=[0-9a-f]{16}$`, mark(german))
	require.NotEqual(t, mark(german), mark(apply(nil)))
	require.Equal(t, mark(apply(nil)), mark(apply(map[string]string{"OTHER": "y"})), "a value that is not used replaces no pods")
}

func TestDisabled(t *testing.T) {
	var said []string
	got, err := manifestChanges{Disabled: []string{"deployment/web", "deployment/gone", "configmap/fixed"}}.Apply(readObjects(t, shopManifests), func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	})
	require.NoError(t, err)
	var left []string
	for _, o := range got {
		left = append(left, marks.ServiceName(o.Kind, o.Name))
	}
	require.ElementsMatch(t, []string{"configmap/settings", "configmap/fixed", "till/till"}, left)
	require.Len(t, said, 2)
}

func TestFingerprint(t *testing.T) {
	require.Empty(t, manifestChanges{}.Fingerprint())
	seen := map[string]bool{}
	for _, c := range []manifestChanges{
		{Overrides: patches("a")}, {Overrides: patches("b")}, {Overrides: patches("a", "b")},
		{Values: map[string]string{"A": "a"}}, {Values: map[string]string{"A": "b"}}, {Disabled: []string{"a"}},
	} {
		require.False(t, seen[c.Fingerprint()])
		seen[c.Fingerprint()] = true
	}
}
