package render

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/mender-app/mender-app/generator/manifests"
)

// chartFile makes a directory a chart.
const chartFile = "Chart.yaml"

// kubeVersion is what charts are told of the cluster: the version of the library that
// knows its APIs.
const kubeVersion = "v1.37.0"

// Release describes a release to its chart.
type Release struct {
	Name      string
	Namespace string
	Values    []string // files with values; the last one wins
}

// renderChart renders the chart in dir. It renders twice, with other random numbers and another
// time, because both must give the same objects.
func renderChart(dir string, r Release) (list []Object, notes []string, err error) {
	values, err := readValues(r.Values)
	if err != nil {
		return nil, nil, err
	}
	render := func(other func(name string) bool) (*chart.Chart, map[string]string, []string, error) {
		c := &chance{called: map[string]bool{}, other: other}
		of, files, err := chartFiles(dir, r, values, c.functions())
		return of, files, slices.Sorted(maps.Keys(c.called)), err
	}
	c, first, called, err := render(func(string) bool { return false })
	if err != nil {
		return nil, nil, err
	}
	_, second, _, err := render(func(string) bool { return true })
	if err != nil {
		return nil, nil, err
	}
	o := &chartObjects{}
	for _, crd := range c.CRDObjects() {
		o.file(origin(crd.Filename), string(crd.File.Data))
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		if sameShipped(name, first[name], second[name]) {
			o.file(origin(name), first[name])
			continue
		}
		// It calls one of these, itself or by what it includes.
		culprits := slices.DeleteFunc(called, func(f string) bool {
			_, files, _, err := render(func(name string) bool { return name == f })
			return err != nil || sameShipped(name, files[name], first[name])
		})
		return nil, nil, &manifests.Error{Place: manifests.Place{File: origin(name)},
			Text: "is different each time it is rendered, because of " + strings.Join(culprits, ", "),
			Hint: "set the values that the chart makes up, with --values"}
	}
	return o.list, o.notes, o.err()
}

// readValues merges files of values.
func readValues(files []string) (map[string]any, error) {
	values := map[string]any{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, &ValuesError{name, err}
		}
		text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		f.Close()
		if err == nil && len(text) > maxFile {
			err = fmt.Errorf("more than %d MiB", maxFile>>20)
		}
		var more map[string]any
		if err == nil {
			more, err = loader.LoadValues(bytes.NewReader(text))
		}
		if err != nil {
			return nil, &ValuesError{name, err}
		}
		values = loader.MergeMaps(values, more)
	}
	return values, nil
}

// ValuesError: a file of values cannot be used.
type ValuesError struct {
	File string
	Err  error
}

func (e *ValuesError) Error() string { return "--values " + e.File + ": " + oneLine(e.Err.Error()) }

func (e *ValuesError) Unwrap() error { return e.Err }

// chartFiles loads the chart in dir and returns its rendered files, by their names below the
// chart's name.
func chartFiles(dir string, r Release, values map[string]any, f map[string]any) (*chart.Chart, map[string]string, error) {
	bad := func(file string, err error) error {
		return &manifests.Error{Place: manifests.Place{File: file}, Text: oneLine(err.Error())}
	}
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, nil, bad(chartFile, err)
	}
	if missing := missingCharts(c); len(missing) > 0 {
		return nil, nil, &manifests.Error{Place: manifests.Place{File: chartFile},
			Text: "dependencies are not in charts/: " + strings.Join(missing, ", "), Hint: "run helm dependency build"}
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, nil, bad(chartFile, err)
	}
	caps := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, nil, err
	}
	caps.KubeVersion = *version
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValuesWithSchemaValidation(c, values, options, caps, true)
	if err != nil {
		return nil, nil, bad(chartFile, err)
	}
	if err := checkSchemas(c, all["Values"]); err != nil {
		return nil, nil, bad("values.schema.json", err)
	}
	files, err := engine.Engine{CustomTemplateFuncs: f}.RenderWithContext(context.Background(), c, all) // the context is for lookups, and there are none
	if err != nil {
		return nil, nil, bad(chartFile, err)
	}
	return c, files, nil
}

// missingCharts are the dependencies of a chart that charts/ does not have.
func missingCharts(c *chart.Chart) (list []string) {
	for _, d := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(has *chart.Chart) bool { return has.Name() == d.Name }) {
			list = append(list, d.Name)
		}
	}
	return list
}

// origin is the file of a chart in its directory.
func origin(name string) string {
	_, file, _ := strings.Cut(name, "/")
	return file
}

// chartObjects are the objects of the files of a chart.
type chartObjects struct {
	list  []Object
	notes []string
	hooks []string // those that would have to run
	at    string   // the first of them
	first error
}

// sameShipped reports whether a file rendered twice has the same objects that are shipped. A
// test of helm may have another name each time.
func sameShipped(name, first, second string) bool {
	if first == second {
		return true
	}
	var a, b chartObjects
	a.file(name, first)
	b.file(name, second)
	return a.first == nil && b.first == nil && slices.EqualFunc(a.list, b.list, func(x, y Object) bool { return bytes.Equal(x.text, y.text) })
}

// err says what cannot be shipped.
func (o *chartObjects) err() error {
	switch {
	case o.first != nil:
		return o.first
	case len(o.hooks) > 0:
		return &manifests.Error{Place: manifests.Place{File: o.at},
			Text: "hooks of helm do not run on the device: " + strings.Join(o.hooks, ", "),
			Hint: "switch them off with --values; a hook of the device (docs/POLICY.md) can do such work"}
	}
	return nil
}

// file adds the objects of a file.
func (o *chartObjects) file(name, text string) {
	r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text + "\n")))
	for o.first == nil {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name        string            `json:"name"`
				Namespace   string            `json:"namespace"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		var content any
		if err == nil {
			err = yaml.Unmarshal(doc, &content)
		}
		if err == nil && content == nil {
			continue // nothing but comments
		}
		if err == nil {
			err = yaml.Unmarshal(doc, &head)
		}
		if err != nil {
			o.first = &manifests.Error{Place: manifests.Place{File: name}, Text: "as rendered: " + oneLine(err.Error())}
			return
		}
		object := Object{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name, Origin: name,
			secret: head.Kind == "Secret" && head.APIVersion == "v1", text: doc}
		if events := head.Metadata.Annotations["helm.sh/hook"]; events != "" {
			o.hook(&object, events)
			continue
		}
		o.list = append(o.list, object)
	}
}

// neverRun are the events of hooks that do not occur on a device: nothing tests, deletes or
// rolls back with helm. What an installation needs of them is what it has anyway.
var neverRun = []string{"test", "test-success", "test-failure", "pre-delete", "post-delete", "pre-rollback", "post-rollback"}

// hook notes a hook of helm, which is not shipped.
func (o *chartObjects) hook(object *Object, events string) {
	name := fmt.Sprintf("%s (%s)", object, events)
	for _, e := range strings.Split(events, ",") {
		if !slices.Contains(neverRun, strings.ToLower(strings.TrimSpace(e))) {
			if o.at == "" {
				o.at = object.Origin
			}
			o.hooks = append(o.hooks, name)
			return
		}
	}
	o.notes = append(o.notes, object.Origin+": "+name+" is a hook of helm that never runs on the device: it is not shipped")
}
