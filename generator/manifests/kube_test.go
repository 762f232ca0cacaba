package manifests

import (
	"errors"
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
kind: List
items:
- kind: Deployment
  metadata: {name: d}
  spec: {template: {spec: {containers: [{name: c, image: "deploy:1"}]}}}
- kind: CronJob
  metadata: {name: cron}
  spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: "cron:1"}]}}}}}
- kind: Service
  spec: {ports: []}
`,
		"c.json", `{"kind":"StatefulSet","metadata":{"name":"s"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"state:1"}]}}}}`,
		"d.yaml", `
x: &c {image: "alias:1"}
kind: DaemonSet
metadata: {name: ds}
spec: {template: {spec: {containers: [{name: c, <<: *c}, {name: same, image: "main:1"}]}}}
---
kind: Rollout
metadata: {name: custom}
spec: {template: {spec: {containers: [{name: c, image: "custom:1"}]}}}
---
kind: Job
metadata: {name: j}
spec: {template: {spec: {containers: [{name: c, image: "job"}]}}}
---
kind: ReplicaSet
metadata: {name: r}
spec: {template: {spec: {containers: [{name: c, image: "rs:1", imagePullPolicy: Never}]}}}
`)
	found, err := Kubernetes(dir, KubernetesOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"init:1", "main:1", "eph:1", "vol:1", "state:1", "alias:1", "custom:1", "job", "rs:1", "deploy:1", "cron:1"}, found.Images())
	require.Equal(t, Use{Image: "main:1", By: `Pod "p", container "c"`, Place: Place{"a.yaml", 9}}, found.Uses[1])
	require.Len(t, found.Warnings, 1)
	require.Contains(t, found.Warnings[0], `d.yaml:13: Job "j", container "c": job without an imagePullPolicy`)
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
