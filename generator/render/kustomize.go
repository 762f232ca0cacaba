package render

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/mender-app/mender-app/generator/manifests"
)

// kustomizationFiles are the names that kustomize knows.
var kustomizationFiles = konfig.RecognizedKustomizationFileNames()

// kustomize renders the kustomization at the top of dir.
func kustomize(dir, shown, top string) ([]Object, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, fmt.Errorf("manifests directory: %w", err)
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	w := &watcher{top: top, plugins: map[string]bool{}}
	w.fs = &confined{root: root, real: real, at: shown, see: w.see}
	o := krusty.MakeDefaultOptions()                // no plugins, no helm
	o.LoadRestrictions = types.LoadRestrictionsNone // of kustomize: w.fs has the manifests directory alone
	m, err := krusty.MakeKustomizer(o).Run(w.fs, shown)
	if w.refused != nil {
		return nil, w.refused
	}
	if err != nil {
		return nil, w.said(&manifests.Error{Place: manifests.Place{File: top}, Text: oneLine(strings.ReplaceAll(err.Error(), shown+"/", ""))})
	}
	if m.Size() == 0 {
		return nil, w.said(noObjects(top))
	}
	list, err := w.objects(m)
	if err != nil {
		return nil, &manifests.Error{Place: manifests.Place{File: top}, Text: oneLine(err.Error())}
	}
	return list, nil
}

// said adds what to do when a component is rendered by itself.
func (w *watcher) said(e *manifests.Error) error {
	if w.component {
		e.Hint = "this is a component, which changes what a kustomization has: ship a kustomization that names it in components"
	}
	return e
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// objects are the rendered objects, in the order of kustomize.
func (w *watcher) objects(m resmap.ResMap) ([]Object, error) {
	var list []Object
	for _, r := range m.Resources() {
		origin, err := r.GetOrigin()
		if err != nil {
			return nil, err
		}
		if !w.keepOrigin {
			if err := r.SetOrigin(nil); err != nil {
				return nil, err
			}
		}
		o := Object{Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
		if origin != nil {
			if o.Origin = origin.Path; o.Origin == "" {
				o.Origin = origin.ConfiguredIn
			}
		}
		gvk := r.GetGvk()
		o.secret = gvk.Kind == "Secret" && gvk.Group == "" && gvk.Version == "v1"
		if o.text, err = r.AsYAML(); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// watcher looks at each file before kustomize gets it. Kustomize clones what looks like a
// repository and downloads what looks like an address; it has no option against that. So
// a file that names either is refused before kustomize reads it.
type watcher struct {
	fs         *confined
	top        string
	plugins    map[string]bool // files that configure generators, transformers and validators
	component  bool            // the kustomization is a component of others
	walked     int             // nodes of all files so far
	keepOrigin bool            // the kustomization asks for the annotations of origins
	refused    error           // the first refusal; kustomize goes on after some errors
}

func (w *watcher) see(name string, text []byte) ([]byte, error) {
	isKustomization := slices.Contains(kustomizationFiles, path.Base(name))
	if !isKustomization && !w.plugins[name] {
		return text, nil
	}
	var first *yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, w.refuse(name, 0, oneLine(err.Error()), "")
		}
		if len(doc.Content) == 0 {
			continue
		}
		if err := w.document(name, doc.Content[0], isKustomization); err != nil {
			return nil, err
		}
		if first == nil {
			first = doc.Content[0]
		}
	}
	if name != w.top || first == nil || first.Kind != yaml.MappingNode {
		return text, nil
	}
	w.component = valueOf(first, "kind") == "Component"
	return w.withOrigins(first)
}

// valueOf is the text that a key of a mapping has; "" if there is none.
func valueOf(n *yaml.Node, key string) (text string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			text = resolved(n.Content[i+1]).Value
		}
	}
	return text
}

const originOption = "originAnnotations"

// withOrigins asks kustomize to say where objects come from.
func (w *watcher) withOrigins(doc *yaml.Node) ([]byte, error) {
	option := &yaml.Node{Kind: yaml.ScalarNode, Value: originOption}
	for i := 0; i+1 < len(doc.Content); i += 2 {
		if !strings.EqualFold(doc.Content[i].Value, "buildMetadata") {
			continue
		}
		list := resolved(doc.Content[i+1])
		w.keepOrigin = slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return n.Value == originOption })
		if !w.keepOrigin {
			list.Content = append(list.Content, option)
		}
		return yaml.Marshal(doc)
	}
	doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "buildMetadata"},
		&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{option}})
	return yaml.Marshal(doc)
}

// The keys of a kustomization whose entries may be directories, and of these the ones
// whose entries configure plugins.
var (
	directoryKeys = []string{"resources", "bases", "components", "generators", "transformers", "validators"}
	pluginKeys    = []string{"generators", "transformers", "validators"}
)

// freeKeys have values that name no files.
var freeKeys = []string{
	"metadata", "annotations", "commonAnnotations", "labels", "commonLabels", "literals", "patch",
	"images", "imageTags", "vars", "generatorOptions", "buildMetadata", "sourceValue", "value", "replicas", "options",
}

// maxDepth bounds the nesting of a kustomization, maxWalked the nodes of all files that are
// looked at: aliases can name each other many times over.
const (
	maxDepth  = 32
	maxWalked = 1 << 20
)

// document looks at a kustomization, or at the configuration of a plugin.
func (w *watcher) document(name string, doc *yaml.Node, isKustomization bool) error {
	doc = resolved(doc)
	if doc.Kind == yaml.MappingNode && !isKustomization {
		if valueOf(doc, "kind") == "HelmChartInflationGenerator" {
			return w.refuse(name, doc.Line, "a chart in a kustomization is not rendered", chartHint)
		}
	}
	return w.walk(name, "", doc, isKustomization, 0)
}

const chartHint = "ship the output of `helm template` as a resource"

func (w *watcher) walk(name, key string, n *yaml.Node, isKustomization bool, depth int) error {
	if depth > maxDepth {
		return w.refuse(name, n.Line, "is nested too deeply", "")
	}
	if w.walked++; w.walked > maxWalked {
		return w.refuse(name, n.Line, "has too many aliases of aliases", "")
	}
	n = resolved(n)
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at, k := n.Content[i], n.Content[i].Value
			has := func(list []string) bool {
				return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, k) })
			}
			switch {
			case has(freeKeys):
				continue
			case isKustomization && has([]string{"helmCharts", "helmChartInflationGenerator"}):
				return w.refuse(name, at.Line, k+": a chart in a kustomization is not rendered", chartHint)
			case k == "<<":
				k = key
			}
			if err := w.walk(name, k, n.Content[i+1], isKustomization, depth+1); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if err := w.walk(name, key, c, isKustomization, depth+1); err != nil {
				return err
			}
		}
	case yaml.ScalarNode:
		return w.value(name, key, n, isKustomization)
	}
	return nil
}

// value looks at a text, which may name a file, a directory or something remote.
func (w *watcher) value(name, key string, n *yaml.Node, isKustomization bool) error {
	is := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, key) })
	}
	_, after, _ := strings.Cut(n.Value, "=") // of files: NAME=FILE
	if isAddress(n.Value) || isAddress(after) {
		return w.refuse(name, n.Line, n.Value+" is remote, and nothing is downloaded", remoteHint)
	}
	if !isKustomization || !is(directoryKeys) {
		return nil
	}
	if strings.Contains(n.Value, "\n") && is(pluginKeys) { // written in place
		var doc yaml.Node
		dec := yaml.NewDecoder(strings.NewReader(n.Value))
		for dec.Decode(&doc) == nil {
			if len(doc.Content) > 0 {
				if err := w.document(name, doc.Content[0], false); err != nil {
					return err
				}
			}
			doc = yaml.Node{}
		}
		return nil
	}
	if isRepository(n.Value) {
		return w.refuse(name, n.Line, n.Value+" is remote, and nothing is downloaded", remoteHint)
	}
	file := path.Join(path.Dir(name), filepath.ToSlash(n.Value))
	if filepath.IsAbs(n.Value) {
		file = n.Value
	}
	info, err := w.fs.stat(file)
	switch {
	case errors.Is(err, errLeaves):
		return w.refuse(name, n.Line, n.Value+" leaves the manifests directory",
			"give app-gen the directory that has both as --manifests-dir, with a kustomization.yaml that names this one in resources")
	case errors.Is(err, fs.ErrNotExist):
		return w.refuse(name, n.Line, n.Value+" does not exist", "")
	case err != nil:
		return w.refuse(name, n.Line, fmt.Sprintf("%s: %v", n.Value, err), "")
	case is(pluginKeys) && info.IsDir():
		return w.refuse(name, n.Line, fmt.Sprintf("%s: %s is a directory", key, n.Value), "name the files in it")
	case is(pluginKeys):
		w.plugins[file] = true
	}
	return nil
}

const remoteHint = "put a copy into the manifests directory"

// isAddress reports whether kustomize downloads a text that names a file.
func isAddress(s string) bool {
	s = strings.ToLower(s)
	return strings.HasPrefix(s, "http:") || strings.HasPrefix(s, "https:")
}

// isRepository reports whether kustomize may clone a text that names a directory.
func isRepository(s string) bool {
	return strings.ContainsAny(s, ":@?") || strings.HasPrefix(strings.ToLower(s), "github.com")
}

func (w *watcher) refuse(name string, line int, text, hint string) error {
	err := &manifests.Error{Place: manifests.Place{File: name, Line: line}, Text: text, Hint: hint}
	if w.refused == nil {
		w.refused = err
	}
	return err
}

func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
