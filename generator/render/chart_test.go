package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/manifests"
)

// shopChart is a chart with what charts usually have, and a dependency.
func shopChart(t testing.TB, more ...string) string {
	return tree(t, append([]string{
		"Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.2.3\nappVersion: \"2.1\"\nkubeVersion: '>=1.19.0-0'\ndependencies:\n- {name: db, version: 0.1.0, repository: 'https://charts.example', condition: db.enabled}\n",
		"values.yaml", "image: {repository: shop/web}\nreplicas: 1\npassword: \"\"\ndb: {enabled: true, size: 1}\nglobal: {site: none}\n",
		"values.schema.json", `{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"replicas": {"type": "integer"}, "image": {"$ref": "https://schemas.example/image.json"}}}`,
		"templates/_names.tpl", `{{ define "shop.name" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}`,
		"templates/web.yaml", `apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "shop.name" . }}
  namespace: {{ .Release.Namespace }}
  annotations: {checksum: {{ include (print $.Template.BasePath "/config.yaml") . | sha256sum }}, site: {{ .Values.global.site }}}
spec:
  replicas: {{ .Values.replicas }}
  template:
    spec:
      containers:
      - {name: web, image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"}
`,
		"templates/config.yaml", "{{ $default := randAlphaNum 8 }}apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata:\n{{ (.Files.Glob \"files/*\").AsConfig | indent 2 }}\n  known: {{ len (lookup \"v1\" \"Secret\" \"\" \"\") | quote }}\n  host: {{ getHostByName \"shop.example\" | quote }}\n",
		"templates/login.yaml", "{{ if .Values.password }}apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: {{ .Values.password }}}\n{{ end }}",
		"templates/tests/ping.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: ping, annotations: {helm.sh/hook: test, at: {{ randAlphaNum 8 | quote }}}}\nspec: {containers: [{name: p, image: 'ping:1'}]}\n",
		"templates/NOTES.txt", "Thank you: {{ now }}\n",
		"crds/visits.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: visits.shop.example}\nspec: {note: '{{ no template }}'}\n",
		"files/app.conf", "one = 1\n",
		"charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 0.1.0\n",
		"charts/db/templates/db.yaml", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {replicas: {{ .Values.size }}, template: {spec: {containers: [{name: db, image: 'db:{{ .Values.global.site }}'}]}}}\n",
	}, more...)...)
}

func chartOf(t *testing.T, dir string, values ...string) (*Rendered, error) {
	t.Helper()
	top, err := Top(dir)
	require.NoError(t, err)
	require.True(t, IsChart(top))
	return Render(dir, dir, top, Release{Name: "kiosk", Namespace: "shops", Values: values})
}

func TestChart(t *testing.T) {
	values := tree(t, "a.yaml", "replicas: 2\nglobal: {site: north}\npassword: hunter2\n", "b.yaml", "replicas: 3\n")
	files := []string{filepath.Join(values, "a.yaml"), filepath.Join(values, "b.yaml")}
	r, err := chartOf(t, shopChart(t), files...)
	require.NoError(t, err)
	var names, origins []string
	for i := range r.Objects {
		names, origins = append(names, r.Objects[i].String()), append(origins, r.Objects[i].Origin)
	}
	require.Equal(t, []string{"customresourcedefinition/visits.shop.example", "statefulset/db", "configmap/config", "secret/login", "deployment/kiosk-shop"}, names)
	require.Equal(t, []string{"crds/visits.yaml", "charts/db/templates/db.yaml", "templates/config.yaml", "templates/login.yaml", "templates/web.yaml"}, origins)
	for _, has := range []string{"namespace: shops", "image: \"shop/web:2.1\"", "replicas: 3", "site: north", "db:north", "one = 1", `known: "0"`, `host: ""`, "{{ no template }}"} {
		require.Contains(t, r.Text, has)
	}
	require.NotContains(t, r.Text, "hunter2")
	require.Equal(t, []string{"templates/tests/ping.yaml: pod/ping (test) is a hook of helm that never runs on the device: it is not shipped"}, r.Notes)
	again, err := chartOf(t, shopChart(t), files...)
	require.NoError(t, err)
	require.Equal(t, r, again, "the same bytes again")

	out := t.TempDir()
	require.NoError(t, r.Write(out))
	found, err := manifests.Kubernetes(out, manifests.KubernetesOptions{Encrypt: true})
	require.NoError(t, err)
	require.Equal(t, []string{SecretsFile}, found.Encrypt)
	require.Equal(t, []string{"db:north", "shop/web:2.1"}, found.Images())
	require.Equal(t, manifests.Place{File: "templates/web.yaml"}, r.Place(found.Uses[1].Place))
}

func TestChartValues(t *testing.T) {
	values := tree(t, "off.yaml", "db: {enabled: false}\n", "text.yaml", "replicas: two\n", "bad.yaml", "a: [\n")
	r, err := chartOf(t, shopChart(t), filepath.Join(values, "off.yaml"))
	require.NoError(t, err)
	require.NotContains(t, r.Text, "StatefulSet")
	_, err = chartOf(t, shopChart(t), filepath.Join(values, "text.yaml"))
	require.ErrorContains(t, err, "values.schema.json: values of the chart shop: ")
	require.ErrorContains(t, err, "want integer")
	var bad *ValuesError
	for _, name := range []string{"bad.yaml", "none.yaml"} {
		_, err = chartOf(t, shopChart(t), filepath.Join(values, name))
		require.ErrorAs(t, err, &bad)
	}
}

func TestChartOfArchives(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{{"log/Chart.yaml", "apiVersion: v2\nname: log\nversion: 1.0.0\n"}, {"log/templates/log.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: log}\n"}} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o644, Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte(f[1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	r, err := chartOf(t, shopChart(t, "charts/log-1.0.0.tgz", b.String()))
	require.NoError(t, err)
	require.Contains(t, r.Text, "# charts/log/templates/log.yaml\n")
}

func TestChartRefuses(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '%'}\n"
	with := func(s string) string { return strings.Replace(object, "%", s, 1) }
	for name, c := range map[string]struct{ file, text, want string }{
		"random":         {"templates/a.yaml", with("{{ randAlphaNum 10 }}"), "templates/a.yaml: is different each time it is rendered, because of randAlphaNum"},
		"beside a test":  {"templates/a.yaml", "metadata: {annotations: {helm.sh/hook: test}}\n---\n" + with("{{ randAlphaNum 10 }}"), "because of randAlphaNum"},
		"one of two":     {"templates/a.yaml", with("{{ randInt 0 2 }}"), "because of randInt"},
		"time":           {"templates/a.yaml", with(`{{ now | date "2006" }}`), "because of now"},
		"by an include":  {"templates/a.yaml", "{{ define \"x\" }}{{ uuidv4 }}{{ end }}" + with(`{{ include "x" . }}`), "because of uuidv4"},
		"by tpl":         {"templates/a.yaml", with("{{ tpl .Values.t . }}"), "because of shuffle"},
		"keys":           {"templates/a.yaml", with(`{{ (genSignedCert "a" nil (list "a") 10 (genCA "ca" 365)).Key }}`), "because of genSignedCert"},
		"salt":           {"templates/a.yaml", with(`{{ htpasswd "a" "b" }}`), "because of htpasswd"},
		"a hook":         {"templates/a.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, annotations: {helm.sh/hook: 'post-delete, pre-install'}}\n", "templates/a.yaml: hooks of helm do not run on the device: job/a (post-delete, pre-install)"},
		"fails":          {"templates/a.yaml", with(`{{ required "say who" .Values.who }}`), "say who"},
		"no template":    {"templates/a.yaml", "{{ if }}", "shop/templates/a.yaml:1"},
		"no YAML":        {"templates/a.yaml", "a: [\n", "templates/a.yaml: as rendered: "},
		"no environment": {"templates/a.yaml", with(`{{ env "HOME" }}`), `function "env" not defined`},
		"missing chart":  {"Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: queue, version: 1.0.0, repository: 'oci://charts.example'}]\n", "Chart.yaml: dependencies are not in charts/: queue"},
		"no chart":       {"Chart.yaml", "apiVersion: v2\n", "Chart.yaml: "},
		"too much":       {"kustomization.yaml", "", "only one can be rendered"},
	} {
		t.Run(name, func(t *testing.T) {
			values := tree(t, "v.yaml", "t: '{{ shuffle \"shop\" }}'\n")
			dir := shopChart(t, c.file, c.text)
			top, err := Top(dir)
			if err == nil {
				_, err = Render(dir, dir, top, Release{Name: "kiosk", Namespace: "shops", Values: []string{filepath.Join(values, "v.yaml")}})
			}
			require.ErrorContains(t, err, c.want)
			var e *manifests.Error
			require.ErrorAs(t, err, &e)
		})
	}
}

// A chart can keep app-gen busy only so long, and take only so much memory.
func TestChartIsBounded(t *testing.T) {
	defer func(d time.Duration, n uint64) { maxTime, maxMemory = d, n }(maxTime, maxMemory)
	for text, want := range map[string]string{
		"{{ range until 400 }}{{ range until 200 }}{{ sha256sum (repeat 2000 \"x\") | substr 0 0 }}{{ end }}{{ end }}":       "Chart.yaml: it takes longer than 50ms to render",
		"{{ $x := repeat 300000000 \"x\" }}{{ range until 200 }}{{ sha256sum (repeat 200000 \"y\") | substr 0 0 }}{{ end }}": "Chart.yaml: it takes more than 128 MiB of memory to render",
	} {
		maxTime, maxMemory = time.Hour, 128<<20
		if strings.Contains(want, "longer") {
			maxTime, maxMemory = 50*time.Millisecond, 1<<40
		}
		_, err := chartOf(t, shopChart(t, "templates/a.yaml", text))
		require.EqualError(t, err, want)
		var e *manifests.Error
		require.ErrorAs(t, err, &e)
	}
}

func TestChartIgnores(t *testing.T) {
	r, err := chartOf(t, shopChart(t, ".helmignore", "config.yaml\n", "templates/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"))
	require.NoError(t, err)
	require.NotContains(t, r.Text, "one = 1")
}
