package manifests

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKubernetesImages(t *testing.T) {
	dir := tree(t,
		"a.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  initContainers: [{name: i, image: "init:1"}]
  containers:
  - name: c
    image: main:1
  ephemeralContainers: [{name: e, image: "eph:1"}]
  volumes:
  - name: data
    image: {reference: "vol:1", pullPolicy: IfNotPresent}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {image: "no:1"}
`,
		"sub/b.yml", `
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: d}
  spec: {template: {spec: {containers: [{name: c, image: "deploy:1"}]}}}
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: cron}
  spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: "cron:1"}]}}}}}
- apiVersion: v1
  kind: Service
  metadata: {name: s}
  spec: {ports: []}
`,
		"c.json", `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"s"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"state:1"}]}}}}`,
		"d.yaml", `
x: &c {image: "alias:1"}
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ds}
spec: {template: {spec: {containers: [{name: c, <<: *c}, {name: same, image: "main:1"}]}}}
---
apiVersion: example.com/v1
kind: Rollout
metadata: {name: custom}
spec: {template: {spec: {containers: [{name: c, image: "custom:1"}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {template: {spec: {containers: [{name: c, image: "job", imagePullPolicy: IfNotPresent}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: r}
spec: {template: {spec: {containers: [{name: c, image: "rs:1", imagePullPolicy: Never}]}}}
`)
	found, err := Kubernetes(dir, KubernetesOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"init:1", "main:1", "eph:1", "vol:1", "state:1", "alias:1", "custom:1", "job", "rs:1", "deploy:1", "cron:1"}, found.Images())
	require.Equal(t, Use{Image: "main:1", By: `Pod "p", container "c"`, Place: Place{"a.yaml", 9}}, found.Uses[1])
	require.Empty(t, found.Warnings)
}

func TestKubernetesRefuses(t *testing.T) {
	cases := []struct{ name, file, want string }{
		{"always", "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: a:1\n    imagePullPolicy: Always\n", `x.yaml:7: Pod "p", container "c" has imagePullPolicy: Always`},
		{"no image", "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n", `x.yaml:5: Pod "p", container "c" has no image`},
		{"no pod spec", "kind: Deployment\nmetadata: {name: d}\nspec: {}\n", `x.yaml:1: Deployment "d" has no pod spec (spec.template.spec)`},
		{"no kind", "metadata: {name: d}\n", "x.yaml:1: object has no kind"},
		{"not an object", "- 1\n", "x.yaml:1: not a Kubernetes object"},
		{"not yaml", "kind: Pod\n  x: [\n", "x.yaml:2: "},
		{"an inventory", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mender-app-shop}\n", `x.yaml:1: ConfigMap "mender-app-shop": names that begin with mender-app- are mender-app's own`},
		{"a label of ours", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, labels: {mender-app.io/app: shop}}\n", `x.yaml:1: Deployment "d": `},
		{"refers to itself", "kind: ConfigMap\nmetadata: {name: c}\ndata: &a {b: *a}\n", "anchor 'a' value contains itself"},
		{"nested for ever", "&a\nkind: List\nitems: [*a]\n", "lists are nested too deeply"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Kubernetes(tree(t, "x.yaml", c.file), KubernetesOptions{})
			require.ErrorContains(t, err, c.want)
			var e *Error
			require.True(t, errors.As(err, &e))
		})
	}
	_, err := Kubernetes(tree(t, "x.txt", ""), KubernetesOptions{})
	require.ErrorContains(t, err, "no .yaml, .yml or .json file")
}

// app-gen refuses what a device refuses for reasons in the files alone, with the place.
func TestKubernetesAsTheDevice(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: "
	for name, c := range map[string]struct{ file, text, want string }{
		"latest":             {"a.yaml", pod + "web\n", `a.yaml:6: Pod "p": web without an imagePullPolicy is always pulled`},
		"latest by name":     {"a.yaml", pod + "web:latest\n", `a.yaml:6: Pod "p": web:latest without`},
		"one object twice":   {"a.yaml", pod + "web:1\n---\n" + pod + "web:1\n", `a.yaml:9: Pod/p is in a.yaml:1 already`},
		"no name":            {"a.yaml", "apiVersion: v1\nkind: ConfigMap\n", `a.yaml:1: ConfigMap: metadata.name is missing`},
		"generateName":       {"a.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: j-}\nspec: {template: {spec: {containers: []}}}\n", `a.yaml:1: Job: metadata.generateName: each installation`},
		"data in JSON":       {"b.json", `{"a": 1}`, "b.json:1: not a Kubernetes object: apiVersion and kind are needed"},
		"a key twice":        {"a.yaml", "apiVersion: v1\nkind: ConfigMap\nkind: Secret\nmetadata: {name: c}\n", "a.yaml:3: "},
		"no version":         {"a.yaml", "kind: ConfigMap\nmetadata: {name: c}\n", "a.yaml:1: not a Kubernetes object: apiVersion and kind are needed"},
		"may be pulled":      {"a.yaml", strings.Replace(pod, "{name: p}", `{name: p, annotations: {mender-app.io/allow-pull: "true"}}`, 1) + "web\n", ""},
		"hidden":             {".git/a.yaml", "nonsense", ""},
		"of the editor":      {".a.yaml", "nonsense", ""},
		"encrypted before":   {"s.yaml.age", "age-encryption.org/v1", ""},
		"a policy is enough": {"a.yaml", pod + "web\n    imagePullPolicy: IfNotPresent\n", ""},
		"a kustomization":    {"a/kustomization.yaml", "resources: []\n", "a/kustomization.yaml: a kustomization is rendered only at the top"},
		"a chart":            {"a/Chart.yaml", "name: a\n", "a/Chart.yaml: a chart is rendered only at the top"},
		"and without a type": {"a/Kustomization", "resources: []\n", "a/Kustomization: a kustomization is rendered only at the top"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Kubernetes(tree(t, "ok.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ok}\n", c.file, c.text), KubernetesOptions{})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			if name != "a key twice" && !strings.Contains(c.want, "rendered") { // no YAML is refused before
				require.Contains(t, e.Hint, "the device")
			}
		})
	}
}

// What a device's configuration has to allow is said, and is not a reason to stop.
func TestKubernetesNeedsOfTheDevice(t *testing.T) {
	dir := tree(t,
		"a.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n",
		"b.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: visits.shop.example}\nspec: {group: shop.example, scope: Cluster, names: {kind: Visit}}\n---\napiVersion: shop.example/v1\nkind: Visit\nmetadata: {name: first}\n---\napiVersion: other.example/v1\nkind: Visit\nmetadata: {name: second}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: kube-system}\n")
	own := "objects of the whole cluster, which a device refuses unless K8S_ALLOW_CLUSTER_OBJECTS in its mender-app-k8s.conf has CustomResourceDefinition Visit: b.yaml:1: CustomResourceDefinition/visits.shop.example, b.yaml:6: Visit/first"
	found, err := Kubernetes(dir, KubernetesOptions{Namespace: "shop"})
	require.NoError(t, err)
	require.Equal(t, []string{own, "objects outside the application's namespace, shop, which a device refuses unless K8S_ALLOW_NAMESPACES in its mender-app-k8s.conf has kube-system: b.yaml:14: Role/r"}, found.Notes)
	require.Empty(t, found.Warnings)

	found, err = Kubernetes(dir, KubernetesOptions{At: func(p Place) Place { return Place{File: "of/" + p.File} }})
	require.NoError(t, err)
	require.Equal(t, "objects outside the namespace that the device chooses, which a device refuses unless K8S_ALLOW_NAMESPACES in its mender-app-k8s.conf has kube-system shop: of/a.yaml: ConfigMap/a, of/b.yaml: Role/r", found.Notes[1])

	found, err = Kubernetes(tree(t, "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n"), KubernetesOptions{})
	require.NoError(t, err)
	require.Contains(t, found.Notes[0], "has shop; with --k8s-namespace shop it is the application's own: a.yaml:1: ConfigMap/a")
}

func FuzzKubernetes(f *testing.F) {
	f.Add([]byte("kind: Pod\nspec: {containers: [{image: a}]}\n"))
	f.Add([]byte("&a\nkind: &b {<<: *b}\nitems: [*a]\nspec: {template: {spec: {<<: *b}}}\n"))
	f.Add([]byte("{\"kind\":\"CronJob\",\"spec\":{\"jobTemplate\":null}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var k kube
		if err := k.file("x.yaml", b); err == nil {
			for _, u := range k.found.Uses {
				if u.Image == "" {
					t.Fatal("a use without an image")
				}
			}
		}
	})
}
