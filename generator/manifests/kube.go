package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// podSpecs says where each kind of the Kubernetes API keeps its pod spec.
var podSpecs = map[string][]string{
	"Pod":                   {"spec"},
	"PodTemplate":           {"template", "spec"},
	"Deployment":            {"spec", "template", "spec"},
	"StatefulSet":           {"spec", "template", "spec"},
	"DaemonSet":             {"spec", "template", "spec"},
	"ReplicaSet":            {"spec", "template", "spec"},
	"ReplicationController": {"spec", "template", "spec"},
	"Job":                   {"spec", "template", "spec"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template", "spec"},
}

// kustomizations are the names that kustomize looks for in a directory.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// KubernetesOptions choose how Kubernetes manifests are read.
type KubernetesOptions struct {
	Encrypt bool     // find the files of Secrets, to encrypt them; a Secret that cannot be is an error
	Plain   []string // files whose Secrets may be shipped in plain
	// Namespace is the application's; "" leaves it to the device.
	Namespace string
	// At names the place that a place is shown as; nil: itself.
	At func(Place) Place
}

// Kubernetes reads every .yaml, .yml and .json file below dir and lists the
// images of the pod specs in them: init, ordinary and ephemeral containers and
// image volumes of each kind that has pods, also inside a List. An unknown
// kind is read like a Deployment if it has the same shape. Kustomizations and charts are
// refused: package render makes objects of the one at the top.
func Kubernetes(dir string, o KubernetesOptions) (*Found, error) {
	k := &kube{opts: o}
	if err := k.read(dir); err != nil {
		return nil, err
	}
	objects, err := deviceVerdict(dir)
	if err != nil {
		return nil, err
	}
	at := o.At
	if at == nil {
		at = func(p Place) Place { return p }
	}
	k.found.Notes = append(k.found.Notes, needsOfDevice(objects, o.Namespace, at)...)
	for i := range k.found.Uses {
		k.found.Uses[i].Place = at(k.found.Uses[i].Place)
	}
	return &k.found, nil
}

// deviceVerdict reads the manifests as a device does, and refuses what it would refuse
// whatever runs there.
func deviceVerdict(dir string) ([]manifest.Object, error) {
	// What is encrypted already cannot be read here.
	objects, err := manifest.Read(dir, func(io.Reader) ([]byte, error) { return nil, nil })
	if err != nil {
		return nil, deviceRefuses(err)
	}
	for i := range objects {
		o := &objects[i]
		uses, err := manifest.Images(o)
		if err != nil {
			return nil, deviceRefuses(err)
		}
		for _, u := range uses {
			if u.Policy == "Always" && o.Annotations()[marks.AllowPull] != "true" {
				return nil, &Error{
					Place: Place{File: o.File, Line: manifest.Position(dir, o, u.Field)},
					Text:  fmt.Sprintf("%s %q: %s without an imagePullPolicy is always pulled", o.Kind, o.Name, u.Image),
					Hint:  "the device takes its images from the artifact and refuses this: set imagePullPolicy: IfNotPresent, or use a tag other than latest",
				}
			}
		}
	}
	return objects, nil
}

// deviceRefuses returns a device's error with its place.
func deviceRefuses(err error) error {
	var e *manifest.Error
	if !errors.As(err, &e) {
		return err
	}
	hint := "the device refuses it"
	if filepath.Ext(e.File) == ".json" {
		hint += "; if it is no manifest, name it in " + IgnoreFile
	}
	return &Error{Place: Place{File: e.File, Line: e.Line}, Text: e.Err.Error(), Hint: hint}
}

// kube reads Kubernetes manifests.
type kube struct {
	opts    KubernetesOptions
	found   Found
	objects int
	secrets []Place // Secrets with data in the file that is read
	others  bool    // the file that is read has other objects
	// reach is set if only what pods reach is of interest: it has the reach of
	// each object with pods. Then nothing is checked.
	reach map[string]*Reach
}

// read reads all manifests below dir.
func (k *kube) read(dir string) error {
	dir, err := realDir(dir)
	if err != nil {
		return err
	}
	var files []string
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir // as a device does
		}
		switch {
		case d.IsDir() || k.reach != nil:
		case slices.Contains(kustomizations, d.Name()):
			return &Error{Place: Place{File: path}, Text: "a kustomization is rendered only at the top of the manifests directory",
				Hint: "put a kustomization.yaml at the top that names this directory in resources"}
		case d.Name() == "Chart.yaml":
			return &Error{Place: Place{File: path}, Text: "a chart is rendered only at the top of the manifests directory",
				Hint: "give its directory as --manifests-dir"}
		}
		if plain, ok := strings.CutSuffix(path, names.EncryptedSuffix); ok && !d.IsDir() && manifest.IsManifest(plain) {
			k.found.Encrypted = true
			k.found.Needs = append(k.found.Needs, path)
		}
		if !d.IsDir() && manifest.IsManifest(path) {
			files = append(files, path)
			k.found.Needs = append(k.found.Needs, path)
		}
		return nil
	})
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	if len(files) == 0 {
		return &Error{Place: Place{File: "."}, Text: "no .yaml, .yml or .json file in the manifests directory"}
	}
	for _, f := range files {
		b, err := readManifest(dir, f)
		if err != nil {
			return err
		}
		k.secrets, k.others = nil, false
		if err := k.file(f, b); err != nil {
			return err
		}
		if err := k.encrypt(dir, f); err != nil {
			return err
		}
	}
	return nil
}

func (k *kube) file(name string, b []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return yamlError(name, err)
		}
		if len(doc.Content) == 0 {
			continue
		}
		if err := k.object(name, resolve(doc.Content[0]), 0); err != nil {
			return err
		}
	}
}

// Bounds for YAML that refers to itself.
const (
	maxNesting = 8    // Lists in Lists
	maxMerged  = 1000 // mappings that merge keys lead to from one
	maxObjects = 10_000
)

func (k *kube) object(file string, n *yaml.Node, depth int) error {
	if isNull(n) {
		return nil
	}
	at := Place{File: file, Line: n.Line}
	if k.objects++; k.objects > maxObjects {
		return &Error{Place: at, Text: fmt.Sprintf("more than %d objects", maxObjects)}
	}
	if n.Kind != yaml.MappingNode {
		return &Error{Place: at, Text: "not a Kubernetes object"}
	}
	kind := scalar(get(n, "kind"))
	if kind == "PersistentVolume" && k.reach != nil {
		k.volumeReach(fmt.Sprintf("%s %q", kind, objectName(n)), get(n, "spec"))
	}
	if kind == "" {
		if k.reach != nil {
			return nil
		}
		if strings.HasSuffix(file, ".json") || depth > 0 {
			return nil // data, not a manifest
		}
		return &Error{Place: at, Text: "object has no kind", Hint: "is this a Kubernetes manifest?"}
	}
	if strings.HasSuffix(kind, "List") {
		items := get(n, "items")
		if items != nil && items.Kind == yaml.SequenceNode {
			if depth >= maxNesting {
				return &Error{Place: at, Text: "lists are nested too deeply"}
			}
			for _, item := range items.Content {
				if err := k.object(file, resolve(item), depth+1); err != nil {
					return err
				}
			}
			return nil
		}
	}
	isSecret := kind == "Secret" && scalar(get(n, "apiVersion")) == "v1"
	k.others = k.others || !isSecret
	hasData := !isNull(get(n, "data")) || !isNull(get(n, "stringData"))
	if isSecret && hasData {
		k.secrets = append(k.secrets, at)
	}
	if kind == "Secret" && k.reach == nil && hasData && !(k.opts.Encrypt && isSecret) {
		k.found.Plain = append(k.found.Plain, at.File)
	}
	if kind == "Secret" && k.reach == nil && hasData && !(k.opts.Encrypt && isSecret) && !slices.Contains(k.opts.Plain, at.File) {
		k.found.Warnings = append(k.found.Warnings, fmt.Sprintf("%s: Secret %q is shipped in plain, and whoever has the artifact can read it: encrypt it with --encrypt-secrets-to, or create it on the device", at, objectName(n)))
	}
	if err := k.checkMarks(at, kind, n); err != nil {
		return err
	}
	if k.reach == nil && marks.IsService(kind) {
		k.found.Services = append(k.found.Services, marks.ServiceName(kind, objectName(n)))
	}
	path, known := podSpecs[kind]
	if !known {
		path = podSpecs["Deployment"]
	}
	spec := get(n, path...)
	if spec == nil || spec.Kind != yaml.MappingNode {
		if known && k.reach == nil {
			return &Error{Place: at, Text: fmt.Sprintf("%s %q has no pod spec (%s)", kind, objectName(n), strings.Join(path, "."))}
		}
		return nil
	}
	if !known && get(spec, "containers") == nil {
		return nil
	}
	who := fmt.Sprintf("%s %q", kind, objectName(n))
	if k.reach != nil {
		k.podReach(who, spec)
		return nil
	}
	return k.podSpec(file, who, spec)
}

// checkMarks refuses an object with names, labels or annotations that only the
// device may write: it would refuse the whole release.
func (k *kube) checkMarks(at Place, kind string, n *yaml.Node) error {
	if k.reach != nil {
		return nil
	}
	var object any
	if err := n.Decode(&object); err != nil {
		return yamlError(at.File, err)
	}
	group, _, found := strings.Cut(scalar(get(n, "apiVersion")), "/")
	if !found {
		group = "" // v1, the core API
	}
	if err := marks.Check(group, kind, objectName(n), object); err != nil {
		return &Error{Place: at, Text: fmt.Sprintf("%s %q: %v", kind, objectName(n), err), Hint: "the device refuses it: choose another one"}
	}
	return nil
}

func (k *kube) podSpec(file, who string, spec *yaml.Node) error {
	for _, key := range []string{"initContainers", "containers", "ephemeralContainers"} {
		list := get(spec, key)
		if isNull(list) {
			continue
		}
		if list.Kind != yaml.SequenceNode {
			return &Error{Place: Place{file, list.Line}, Text: who + ": " + key + " is not a list"}
		}
		for _, c := range list.Content {
			c = resolve(c)
			by := fmt.Sprintf("%s, container %q", who, scalar(get(c, "name")))
			img := get(c, "image")
			if scalar(img) == "" {
				return &Error{Place: Place{file, c.Line}, Text: by + " has no image"}
			}
			if err := k.image(file, by, img, get(c, "imagePullPolicy")); err != nil {
				return err
			}
		}
	}
	if volumes := get(spec, "volumes"); volumes != nil && volumes.Kind == yaml.SequenceNode {
		for _, v := range volumes.Content {
			v = resolve(v)
			if ref := get(v, "image", "reference"); scalar(ref) != "" {
				by := fmt.Sprintf("%s, volume %q", who, scalar(get(v, "name")))
				if err := k.image(file, by, ref, get(v, "image", "pullPolicy")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (k *kube) image(file, by string, img, policy *yaml.Node) error {
	at := Place{file, img.Line}
	switch p := scalar(policy); p {
	case "Always":
		return &Error{Place: Place{file, policy.Line}, Text: by + " has imagePullPolicy: Always",
			Hint: "the device takes its images from the artifact: use IfNotPresent or Never"}
	case "":
		if !strings.Contains(img.Value, "@") && (strings.HasSuffix(img.Value, ":latest") || !strings.Contains(img.Value[strings.LastIndexByte(img.Value, '/')+1:], ":")) {
			k.found.Warnings = append(k.found.Warnings, fmt.Sprintf("%s: %s: %s without an imagePullPolicy is always pulled: set imagePullPolicy: IfNotPresent or use a tag other than latest", at, by, img.Value))
		}
	}
	k.found.Uses = append(k.found.Uses, Use{Image: img.Value, By: by, Place: at})
	return nil
}

func objectName(n *yaml.Node) string {
	if name := scalar(get(n, "metadata", "name")); name != "" {
		return name
	}
	return scalar(get(n, "metadata", "generateName"))
}

// get follows keys through mappings. It returns nil if a key is missing.
func get(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		n = member(n, key, map[*yaml.Node]bool{})
	}
	return n
}

// member returns the value of key in a mapping. The mapping's own keys override
// those of merge keys. A mapping in seen was searched in vain: mappings may merge
// the same ones over and over.
func member(n *yaml.Node, key string, seen map[*yaml.Node]bool) *yaml.Node {
	if n = resolve(n); n == nil || n.Kind != yaml.MappingNode || seen[n] || len(seen) > maxMerged {
		return nil
	}
	seen[n] = true
	var merged *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch k, v := n.Content[i], n.Content[i+1]; {
		case k.Value == key:
			return resolve(v)
		case k.Tag == "!!merge" && merged == nil:
			merged = member(v, key, seen)
		}
	}
	return merged
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func yamlError(file string, err error) error {
	e := &Error{Place: Place{File: file}, Text: strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")}
	if m := lineOf.FindStringSubmatch(e.Text); m != nil {
		e.Place.Line, _ = strconv.Atoi(m[1])
		e.Text = strings.TrimPrefix(e.Text, m[0]+": ")
	}
	return e
}
