package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return dir
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

func TestRead(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": "# first\n---\n" + configMap("one") + "---\n# nothing here\n---\n\n" + configMap("two") + "...\n",
		"sub/b.yml": `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: ns}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: ns, uid: x, creationTimestamp: null}, status: {a: 1}}
`,
		"sub/c.json": `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}
{"apiVersion":"x.example/v1","kind":"Thing","metadata":{"name":"t"}}`,
		"notes.txt":     "no manifest",
		".hidden.yaml":  "no: manifest",
		".git/x.yaml":   "no: manifest",
		"hooks/pre.sh":  "exit 1",
		"dashes.yaml":   "--- {apiVersion: v1, kind: Service, metadata: {name: svc}}\n",
		"unfinish.yaml": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec: {text: \"---\"}",
	})
	objects, err := Read(dir, nil)
	require.NoError(t, err)
	var got []string
	for i := range objects {
		got = append(got, objects[i].String())
	}
	require.Equal(t, []string{
		"sub/b.yml:1: Namespace/ns",
		"a.yaml:3: ConfigMap/one",
		"a.yaml:10: ConfigMap/two",
		"sub/c.json:1: Secret/s",
		"dashes.yaml:1: Service/svc",
		"sub/b.yml:1: Deployment/d",
		"unfinish.yaml:1: Pod/p",
		"sub/c.json:2: Thing/t",
	}, got)
	d := objects[5]
	require.Equal(t, "apps", d.Group())
	require.Equal(t, "v1", d.Version())
	require.JSONEq(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"ns"}}`, string(d.JSON))
}

func TestRank(t *testing.T) {
	require.Equal(t, RankNamespace, Rank("Namespace"))
	require.Equal(t, RankCRD, Rank("CustomResourceDefinition"))
	require.Equal(t, RankClaim, Rank("PersistentVolumeClaim"))
	require.Greater(t, Rank("Thing"), Rank("Deployment"))
	require.Less(t, Rank("Thing"), Rank("MutatingWebhookConfiguration"))
}

func TestReadErrors(t *testing.T) {
	deep := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 'b'; i < 'k'; i++ {
		p := string(i - 1)
		deep += fmt.Sprintf("%c: &%c [*%s, *%s, *%s, *%s, *%s, *%s, *%s, *%s, *%s, *%s]\n", i, i, p, p, p, p, p, p, p, p, p, p)
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"no object":      {"a.yaml", "# nothing\n", "no manifest"},
		"duplicate key":  {"a.yaml", configMap("x") + "---\n" + configMap("y") + "data:\n  k: v\n  k: w\n", `a.yaml:10: key "k" already set in map`},
		"json duplicate": {"a.json", "{\n\"apiVersion\":\"v1\",\n\"kind\":\"A\",\n\"kind\":\"B\"}", `a.json:4: key "kind" already set in map`},
		"json syntax":    {"a.json", "{\n\"apiVersion\":\n!", `a.json:3: invalid character '!'`},
		"yaml syntax":    {"a.yaml", configMap("x") + "---\na: b\n c: d\n", "a.yaml:6: mapping values are not allowed"},
		"no kind":        {"a.yaml", "apiVersion: v1\n", "a.yaml:1: not a Kubernetes object"},
		"scalar":         {"a.yaml", "hello\n", "a.yaml:1: not a Kubernetes object"},
		"no name":        {"a.yaml", "apiVersion: v1\nkind: Pod\n", "a.yaml:1: Pod: metadata.name is missing"},
		"generated name": {"a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n", "metadata.generateName"},
		"twice":          {"a.yaml", configMap("x") + "---\n" + configMap("x"), "a.yaml:5: ConfigMap/x is in a.yaml:1 already"},
		"kustomize":      {"kustomization.yaml", "resources: []\n", "kustomize does not run"},
		"anchors":        {"a.yaml", deep, "a.yaml:1: its anchors and aliases grow beyond all bounds"},
		"endless anchor": {"a.yaml", "a: &a [*a]\n", "a.yaml:1: "},
		"many nodes":     {"a.yaml", "a: [" + strings.Repeat("1,", maxSeparators) + "1]", "a.yaml:1: more than 200000 lines and items"},
		"document":       {"a.yaml", "# big\na: " + strings.Repeat("x\n   ", MaxDocument/5), "a.yaml:1: a document of more than 2 MiB"},
		"line":           {"a.yaml", "a: " + strings.Repeat("x", MaxDocument), "a line of more than 2 MiB"},
		"file":           {"a.yaml", strings.Repeat("# comment\n---\n", MaxFile/14+1), "a.yaml: larger than 16 MiB"},
		"nested lists":   {"a.json", strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 9) + strings.Repeat("]}", 9), "Lists in Lists"},
		"deep":           {"a.json", strings.Repeat("[", 200_000), "a.json:"},
		"deep yaml":      {"a.yaml", "a: " + strings.Repeat("[", 200_000), "a.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(write(t, map[string]string{c.file: c.text}), nil)
			require.ErrorContains(t, err, c.want)
		})
	}

	t.Run("10000 documents", func(t *testing.T) {
		var b bytes.Buffer
		for i := range MaxDocuments {
			fmt.Fprintf(&b, "---\n%s", configMap(fmt.Sprint("c", i)))
		}
		objects, err := Read(write(t, map[string]string{"a.yaml": b.String()}), nil)
		require.NoError(t, err)
		require.Len(t, objects, MaxDocuments)
		b.WriteString("---\n" + configMap("last"))
		_, err = Read(write(t, map[string]string{"a.yaml": b.String()}), nil)
		require.ErrorContains(t, err, "a.yaml:40002: more than 10000 objects")
	})
	t.Run("links", func(t *testing.T) {
		dir := write(t, map[string]string{"a.yaml": configMap("x")})
		require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "b.yaml")))
		_, err := Read(dir, nil)
		require.ErrorContains(t, err, "b.yaml: not a regular file")
	})
}

func TestPosition(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": configMap("x") + `---
# a workload
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: d
    labels: {"a/b": c}
  spec:
    template:
      spec:
        containers:
        - name: c
          imag: x
`})
	objects, err := Read(dir, nil)
	require.NoError(t, err)
	require.Equal(t, "Deployment", objects[1].Kind)
	require.Equal(t, 19, Position(dir, &objects[1], "spec.template.spec.containers[0].imag"))
	require.Equal(t, 18, Position(dir, &objects[1], "spec.template.spec.containers[0]"))
	require.Equal(t, 19, Position(dir, &objects[1], `spec.template.spec.containers[name="c"].imag`))
	require.Equal(t, 17, Position(dir, &objects[1], "spec.template.spec.containers[7].x"), "the deepest part there is")
	require.Equal(t, 13, Position(dir, &objects[1], "metadata.labels[a/b]"))
	require.Equal(t, objects[0].Line, Position(t.TempDir(), &objects[0], "data"))
}

func TestImages(t *testing.T) {
	objects, err := Read(write(t, map[string]string{"a.yaml": `apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec:
  jobTemplate:
    spec:
      template:
        spec:
          initContainers: [{image: "a"}]
          containers:
          - {image: "r.example:5000/b:1"}
          - {image: "c:latest", imagePullPolicy: Never}
          - {image: "d@sha256:00"}
          volumes: [{image: {reference: "e:2", pullPolicy: Always}}]
`, "b.yaml": configMap("x")}), nil)
	require.NoError(t, err)
	uses, err := Images(&objects[1])
	require.NoError(t, err)
	at := "spec.jobTemplate.spec.template.spec."
	require.Equal(t, []ImageUse{
		{at + "initContainers[0]", "a", "Always"},
		{at + "containers[0]", "r.example:5000/b:1", "IfNotPresent"},
		{at + "containers[1]", "c:latest", "Never"},
		{at + "containers[2]", "d@sha256:00", "IfNotPresent"},
		{at + "volumes[0]", "e:2", "Always"},
	}, uses)
	changed, err := SetImages(&objects[1], objects[1].JSON, map[string]string{"a": "reg/a", "c:latest": "reg/c", "e:2": "reg/e"})
	require.NoError(t, err)
	rewritten := objects[1]
	rewritten.JSON = changed
	uses, err = Images(&rewritten)
	require.NoError(t, err)
	require.Equal(t, []ImageUse{
		{at + "initContainers[0]", "reg/a", "Always"},
		{at + "containers[0]", "r.example:5000/b:1", "IfNotPresent"},
		{at + "containers[1]", "reg/c", "IfNotPresent"},
		{at + "containers[2]", "d@sha256:00", "IfNotPresent"},
		{at + "volumes[0]", "reg/e", "Always"},
	}, uses)
	uses, err = Images(&objects[0])
	require.NoError(t, err)
	require.Empty(t, uses)
}

// FuzzDocuments holds that nothing crashes, that an error names its file, and
// that every object can be placed again.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte(configMap("a")+"---\n"+configMap("b")), false)
	f.Add([]byte("a: &a [*a]\n--- {b: *a}\n...\n"), false)
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		name := "f.yaml"
		if isJSON {
			name = "f.json"
		}
		r := reader{seen: map[string]string{}}
		if err := r.file(name, bytes.NewReader(data)); err != nil {
			var e *Error
			require.True(t, errors.As(err, &e), "%T: %v", err, err)
			require.Equal(t, name, e.File)
			return
		}
		for i := range r.objects {
			require.Positive(t, r.objects[i].Line)
			_, err := Images(&r.objects[i])
			_ = err
		}
	})
}
