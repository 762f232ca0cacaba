package render

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/manifests"
)

// tree makes a directory of files, given as name and content.
func tree(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
	return dir
}

// rendered renders a directory as app-gen does.
func rendered(t *testing.T, dir string) (*Rendered, error) {
	t.Helper()
	top, err := Top(dir)
	if err != nil {
		return nil, err
	}
	require.NotEmpty(t, top)
	return Render(dir, dir, top, Release{})
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: shop/web
        envFrom: [{configMapRef: {name: settings}}]
`

// shop is a project with a base, an overlay, a component and most of what kustomizations do.
func shop(t testing.TB) string {
	return tree(t,
		"kustomization.yaml", "resources: [overlays/gateway]\n",
		"overlays/gateway/kustomization.yml", `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: shop
namePrefix: gw-
resources: [../../base, job.yaml]
components: [../../extras/log]
images:
- {name: shop/web, newName: registry.example/shop/web, newTag: "2.1"}
patches:
- path: two.yaml
- target: {kind: Job}
  patch: |-
    - {op: replace, path: /spec/backoffLimit, value: 3}
replicas:
- {name: web, count: 2}
labels:
- {pairs: {site: "gateway"}}
commonAnnotations: {docs: "https://shop.example/docs"}
configMapGenerator:
- name: settings
  behavior: merge
  literals: ["URL=https://shop.example"]
replacements:
- source: {kind: Deployment, name: web, fieldPath: "spec.template.spec.containers.[name=web].image"}
  targets: [{select: {kind: Job}, fieldPaths: ["spec.template.spec.containers.[name=migrate].image"]}]
`,
		"overlays/gateway/two.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {hostNetwork: true}}}\n",
		"overlays/gateway/job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\nspec: {backoffLimit: 1, template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: old}]}}}\n",
		"base/Kustomization", `resources: [web.yaml]
configMapGenerator:
- {name: settings, files: [app.conf, "second=other.conf"], envs: [settings.env]}
secretGenerator:
- {name: login, literals: [password=hunter2]}
`,
		"base/web.yaml", deployment, "base/app.conf", "one = 1\n", "base/other.conf", "two = 2\n", "base/settings.env", "LEVEL=debug\n",
		"extras/log/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: web, annotations: {log: json}}\n",
		"README.md", "not shipped",
	)
}

func TestKustomization(t *testing.T) {
	dir := shop(t)
	r, err := rendered(t, dir)
	require.NoError(t, err)
	require.Equal(t, "kustomization.yaml", r.From)
	var names, origins []string
	for i := range r.Objects {
		names = append(names, r.Objects[i].String())
		origins = append(origins, r.Objects[i].Origin)
		require.Equal(t, "shop", r.Objects[i].Namespace)
	}
	require.Len(t, names, 4)
	require.Equal(t, []string{"deployment/gw-web", "job/gw-migrate"}, []string{names[0], names[3]})
	require.Regexp(t, `^configmap/gw-settings-[a-z0-9]{10}$`, names[1])
	require.Regexp(t, `^secret/gw-login-[a-z0-9]{10}$`, names[2])
	require.Equal(t, []string{"base/web.yaml", "base/Kustomization", "base/Kustomization", "overlays/gateway/job.yaml"}, origins)
	for _, has := range []string{
		"image: registry.example/shop/web:2.1", "hostNetwork: true", "replicas: 2", "backoffLimit: 3", "log: json", "site: gateway",
		"docs: https://shop.example/docs", "URL: https://shop.example", "LEVEL: debug", "second: |", "name: " + strings.TrimPrefix(names[1], "configmap/"),
	} {
		require.Contains(t, r.Text, has)
	}
	require.Equal(t, 2, strings.Count(r.Text, "image: registry.example/shop/web:2.1"), "the replacement")
	for _, hasNot := range []string{"config.kubernetes.io", "password", "aHVudGVyMg"} {
		require.NotContains(t, r.Text, hasNot)
	}
	again, err := rendered(t, shop(t))
	require.NoError(t, err)
	require.Equal(t, r, again, "the same bytes from another directory")

	out := t.TempDir()
	require.NoError(t, r.Write(out))
	secrets, err := os.ReadFile(filepath.Join(out, SecretsFile))
	require.NoError(t, err)
	require.Contains(t, string(secrets), "password: aHVudGVyMg==")
	found, err := manifests.Kubernetes(out, manifests.KubernetesOptions{Encrypt: true})
	require.NoError(t, err)
	require.Equal(t, []string{SecretsFile}, found.Encrypt)
	require.Equal(t, []string{"registry.example/shop/web:2.1"}, found.Images())
	require.Equal(t, manifests.Place{File: "base/web.yaml"}, r.Place(found.Uses[0].Place))
	require.Equal(t, manifests.Place{File: "overlays/gateway/job.yaml"}, r.Place(found.Uses[1].Place))
	require.Equal(t, manifests.Place{File: "other.yaml", Line: 3}, r.Place(manifests.Place{File: "other.yaml", Line: 3}))
	require.ErrorContains(t, r.Write(out), "rendered.yaml: app-gen writes a file of this name")
}

// The kinds of files that name origins themselves keep them.
func TestKustomizationKeepsItsAnnotations(t *testing.T) {
	r, err := rendered(t, tree(t, "kustomization.yaml", "resources: [web.yaml]\nbuildMetadata: [originAnnotations]\n", "web.yaml", deployment))
	require.NoError(t, err)
	require.Contains(t, r.Text, "config.kubernetes.io/origin")
	require.Equal(t, "web.yaml", r.Objects[0].Origin)
}

func TestKustomizationPlugins(t *testing.T) {
	r, err := rendered(t, tree(t, "kustomization.yaml", `resources: [web.yaml]
transformers:
- prefix.yaml
- |-
  apiVersion: builtin
  kind: AnnotationsTransformer
  metadata: {name: a}
  annotations: {docs: "https://shop.example"}
  fieldSpecs: [{path: metadata/annotations, create: true}]
`, "prefix.yaml", "apiVersion: builtin\nkind: PrefixTransformer\nmetadata: {name: p}\nprefix: a-\nfieldSpecs: [{path: metadata/name}]\n", "web.yaml", deployment))
	require.NoError(t, err)
	require.Equal(t, "deployment/a-web", r.Objects[0].String())
	require.Contains(t, r.Text, "docs: https://shop.example")
}

// What is remote, runs a program or lies outside is refused by name before kustomize acts.
// aliases is a text of some hundred bytes with 9^20 values.
func aliases() string {
	text := "{x0: &a0 [q]"
	for i := range 20 {
		text += fmt.Sprintf(", x%d: &a%d [%s*a%d]", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	return text + "}\n"
}

func TestKustomizationRefuses(t *testing.T) {
	const plugin = "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\ntarget: {kind: Deployment}\npath: https://shop.example/p.yaml\n"
	for name, c := range map[string]struct{ text, want string }{
		"remote file":        {"resources:\n- web.yaml\n- https://shop.example/a.yaml\n", "kustomization.yaml:3: https://shop.example/a.yaml is remote, and nothing is downloaded"},
		"repository":         {"resources: ['https://github.com/shop/web//deploy?ref=v1']\n", "kustomization.yaml:1: https://github.com/shop/web//deploy?ref=v1 is remote"},
		"GitHub":             {"resources: [GitHub.com/shop/web]\n", "GitHub.com/shop/web is remote"},
		"of ssh":             {"resources: ['git@shop.example:web.git']\n", "git@shop.example:web.git is remote"},
		"local repository":   {"resources: ['file:///srv/web']\n", "file:///srv/web is remote"},
		"as a base":          {"bases: [github.com/shop/web]\n", "github.com/shop/web is remote"},
		"as a component":     {"components: [github.com/shop/web]\n", "github.com/shop/web is remote"},
		"by another case":    {"Resources: [github.com/shop/web]\n", "github.com/shop/web is remote"},
		"by an anchor":       {"metadata: {name: x, labels: {a: &a 'HTTPS://shop.example'}}\nresources: [*a]\n", "HTTPS://shop.example is remote"},
		"by a merge":         {"metadata: {annotations: &a {resources: [github.com/shop/web]}}\n<<: *a\n", "github.com/shop/web is remote"},
		"patch":              {"resources: [web.yaml]\npatches: [{path: 'http://shop.example/p.yaml'}]\n", "kustomization.yaml:2: http://shop.example/p.yaml is remote"},
		"file of a map":      {"configMapGenerator: [{name: a, files: ['k=https://shop.example/f']}]\n", "k=https://shop.example/f is remote"},
		"schema":             {"resources: [web.yaml]\nopenapi: {path: https://shop.example/schema}\n", "https://shop.example/schema is remote"},
		"of a transformer":   {"resources: [web.yaml]\ntransformers: [plugin.yaml]\n", "plugin.yaml:5: https://shop.example/p.yaml is remote"},
		"in a transformer":   {"resources: [web.yaml]\ntransformers:\n- |-\n  " + strings.ReplaceAll(plugin, "\n", "\n  ") + "\n", "https://shop.example/p.yaml is remote"},
		"below":              {"resources: [sub]\n", "sub/kustomization.yaml:1: https://shop.example/a.yaml is remote"},
		"chart":              {"helmCharts: [{name: a}]\n", "kustomization.yaml:1: helmCharts: a chart in a kustomization is not rendered"},
		"chart by a plugin":  {"generators:\n- |-\n  apiVersion: builtin\n  kind: HelmChartInflationGenerator\n  metadata: {name: a}\n", "a chart in a kustomization is not rendered"},
		"program":            {"resources: [web.yaml]\ntransformers:\n- |-\n  apiVersion: shop.example/v1\n  kind: Program\n  metadata:\n    name: a\n    annotations: {config.kubernetes.io/function: '{exec: {path: ./run}}'}\n", "external plugins disabled"},
		"directory of these": {"resources: [web.yaml]\ntransformers: [sub]\n", "transformers: sub is a directory"},
		"outside":            {"resources: [../base]\n", "kustomization.yaml:1: ../base leaves the manifests directory"},
		"by an absolute":     {"resources: [/etc]\n", "/etc leaves the manifests directory"},
		"file outside":       {"resources: [web.yaml]\nconfigMapGenerator: [{name: a, files: [../a]}]\n", "leaves the manifests directory"},
		"missing":            {"resources:\n- no.yaml\n", "kustomization.yaml:2: no.yaml does not exist"},
		"aliases":            {aliases(), "kustomization.yaml:1: has too many aliases of aliases"},
		"alias of itself":    {"resources: &a [*a, *a]\n", "is nested too deeply"},
		"itself":             {"resources: [.]\n", "cycle"},
		"no YAML":            {"resources: [\n", "kustomization.yaml: yaml: line"},
		"unknown key":        {"resources: [web.yaml]\nnoSuchKey: 1\n", "kustomization.yaml: "},
		"nothing":            {"namespace: a\n", "kustomization.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, "m/kustomization.yaml", c.text, "m/web.yaml", deployment, "m/plugin.yaml", plugin,
				"m/sub/kustomization.yaml", "resources: [https://shop.example/a.yaml]\n", "base/kustomization.yaml", "resources: [web.yaml]\n", "base/web.yaml", deployment, "a", "a")
			t.Setenv("PATH", "") // no git
			_, err := rendered(t, filepath.Join(dir, "m"))
			require.ErrorContains(t, err, c.want)
			var e *manifests.Error
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestKustomizationLinks(t *testing.T) {
	dir := tree(t, "kustomization.yaml", "resources: [link]\n", "base/kustomization.yaml", "resources: [web.yaml]\n", "base/web.yaml", deployment)
	require.NoError(t, os.Symlink("base", filepath.Join(dir, "link")))
	r, err := rendered(t, dir)
	require.NoError(t, err)
	require.Len(t, r.Objects, 1)

	require.NoError(t, os.Remove(filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(".", filepath.Join(dir, "link")))
	_, err = rendered(t, dir)
	require.ErrorContains(t, err, "cycle")

	require.NoError(t, os.Remove(filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "link")))
	_, err = rendered(t, dir)
	require.ErrorContains(t, err, "kustomization.yaml:1: link")
}

func TestTop(t *testing.T) {
	top, err := Top(tree(t, "web.yaml", deployment, "base/kustomization.yaml", ""))
	require.NoError(t, err)
	require.Empty(t, top)
	_, err = Top(tree(t, "Kustomization", "", "kustomization.yml", ""))
	require.ErrorContains(t, err, "and only one can be rendered")
}

// A component by itself has nothing to change: the error says how it is used.
func TestComponent(t *testing.T) {
	const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	patch := component + "patches:\n- target: {kind: Deployment, name: web}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: web}\n    spec: {replicas: 2}\n"
	for text, want := range map[string]string{
		component + "images: [{name: web, newTag: '2'}]\n": "kustomization.yaml: it has no objects",
		component + "patches: [{path: web.yaml}]\n":        "kustomization.yaml: no resource matches",
	} {
		_, err := rendered(t, tree(t, "kustomization.yaml", text, "web.yaml", deployment))
		require.ErrorContains(t, err, want)
		var e *manifests.Error
		require.ErrorAs(t, err, &e)
		require.Contains(t, e.Hint, "names it in components")
	}
	r, err := rendered(t, tree(t, "kustomization.yaml", "resources: [web.yaml]\ncomponents: [more]\n", "web.yaml", deployment, "more/kustomization.yaml", patch))
	require.NoError(t, err)
	require.Contains(t, r.Text, "replicas: 2")
	_, err = rendered(t, tree(t, "kustomization.yaml", "resources: []\n"))
	var e *manifests.Error
	require.ErrorAs(t, err, &e)
	require.Empty(t, e.Hint)
}
