package k8s

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// manifestChanges are what the device and an operator decided about the objects of a
// release: overrides, values, and workloads that are switched off. What comes out are
// manifests like those that were shipped. The zero value changes nothing.
type manifestChanges struct {
	Overrides []submodules.Override // in the order in which they are applied
	Values    map[string]string
	Disabled  []string // services, named by service.Name
}

// changesOf are the changes that a request asks for.
func changesOf(r submodules.Request) manifestChanges {
	return manifestChanges{Overrides: r.Overrides, Values: r.Values, Disabled: r.Disabled}
}

// Fingerprint names the changes; "" if there are none.
func (c manifestChanges) Fingerprint() string {
	if len(c.Overrides) == 0 && len(c.Values) == 0 && len(c.Disabled) == 0 {
		return ""
	}
	h := sha256.New()
	for _, o := range c.Overrides {
		fmt.Fprintf(h, "override %q %q\n", o.Name, o.Text)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Values)) {
		fmt.Fprintf(h, "value %q %q\n", name, c.Values[name])
	}
	for _, name := range slices.Sorted(slices.Values(c.Disabled)) {
		fmt.Fprintf(h, "disabled %q\n", name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Apply returns the objects of a release with the changes. Every error about an override
// is a submodules.ErrContent. log takes warnings.
func (c manifestChanges) Apply(objects []manifest.Object, log func(format string, args ...any)) ([]manifest.Object, error) {
	objects = slices.Clone(objects)
	for _, o := range c.Overrides {
		if err := override(objects, o); err != nil {
			return nil, submodules.Mark(fmt.Errorf("override %s: %w", o.Name, err), submodules.ErrContent)
		}
	}
	if err := c.setValues(objects); err != nil {
		return nil, submodules.Mark(err, submodules.ErrContent)
	}
	for _, name := range c.Disabled {
		if !slices.ContainsFunc(objects, func(o manifest.Object) bool {
			return marks.IsService(o.Kind) && marks.ServiceName(o.Kind, o.Name) == name
		}) {
			log("warning: the service %s is switched off, and the release has no such workload", name)
		}
	}
	return slices.DeleteFunc(objects, func(o manifest.Object) bool {
		return marks.IsService(o.Kind) && slices.Contains(c.Disabled, marks.ServiceName(o.Kind, o.Name))
	}), nil
}

// override merges the patches of an override into the objects they name.
func override(objects []manifest.Object, o submodules.Override) error {
	patches, err := manifest.ReadPatches(o.Name, []byte(o.Text))
	if err != nil {
		return err
	}
	for i := range patches {
		p := &patches[i]
		at := slices.IndexFunc(objects, func(o manifest.Object) bool {
			return o.Group() == p.Group() && o.Kind == p.Kind && o.Name == p.Name && (p.Namespace == "" || p.Namespace == o.Namespace)
		})
		if at < 0 {
			return fmt.Errorf("line %d: the release has no %s/%s: an override can only change objects in the manifests", p.Line, p.Kind, p.Name)
		}
		changed, err := merge(&objects[at], p)
		if err != nil {
			return fmt.Errorf("line %d: %s/%s: %w", p.Line, p.Kind, p.Name, err)
		}
		objects[at] = changed
		objects[at].Overrides = append(slices.Clone(objects[at].Overrides), o.Name)
	}
	return nil
}

// merge applies a patch to an object as kubectl does: as a strategic merge patch if
// Kubernetes itself defines the kind, otherwise as a JSON merge patch.
func merge(o, patch *manifest.Object) (manifest.Object, error) {
	changed := *o
	if o.Sealed {
		return changed, errors.New("it is encrypted, and an override cannot change it")
	}
	kind := schema.GroupVersionKind{Group: o.Group(), Version: o.Version(), Kind: o.Kind}
	if patch.Version() != o.Version() {
		return changed, fmt.Errorf("the manifest has apiVersion %s", o.APIVersion)
	}
	var err error
	if known, nerr := scheme.Scheme.New(kind); nerr == nil {
		changed.JSON, err = strategicpatch.StrategicMergePatch(o.JSON, patch.JSON, known)
	} else {
		changed.JSON, err = jsonpatch.MergePatch(o.JSON, patch.JSON)
	}
	if err != nil {
		return changed, err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(changed.JSON, &head); err != nil {
		return changed, err
	}
	if head.APIVersion != o.APIVersion || head.Kind != o.Kind || head.Metadata.Name != o.Name || head.Metadata.Namespace != o.Namespace {
		return changed, errors.New("an override cannot remove or rename an object")
	}
	return changed, sameImages(o, &changed)
}

// sameImages refuses an object that names an image it did not name before: the images
// of a release come from its artifact.
func sameImages(before, after *manifest.Object) error {
	was, err := manifest.Images(before)
	if err != nil {
		return err
	}
	now, err := manifest.Images(after)
	if err != nil {
		return err
	}
	for _, use := range now {
		if !slices.ContainsFunc(was, func(u manifest.ImageUse) bool { return u.Image == use.Image }) {
			return fmt.Errorf("%s names the image %s, but the images of a release must come from its artifact", use.Field, use.Image)
		}
	}
	return nil
}

// setValues writes values into the ConfigMaps that ask for them.
func (c manifestChanges) setValues(objects []manifest.Object) (err error) {
	for i := range objects {
		if o := &objects[i]; asksForValues(o) {
			if o.JSON, err = manifest.SetData(o, c.Values); err != nil {
				return err
			}
		}
	}
	return nil
}

func asksForValues(o *manifest.Object) bool {
	return o.Kind == "ConfigMap" && o.Group() == "" && o.Annotations()[marks.Values] == "true"
}

// valuesOf names, for each object of a release, the ConfigMaps with values that its pods
// read, and what they contain; "" for none. Pods that are marked with it (marks.ValuesOf)
// are replaced when a value changes.
func valuesOf(objects []manifest.Object) []string {
	sums := map[string]string{} // by namespace and name
	for i := range objects {
		if o := &objects[i]; asksForValues(o) {
			sum := sha256.Sum256(o.JSON)
			sums[o.Namespace+"/"+o.Name] = hex.EncodeToString(sum[:8])
		}
	}
	all := make([]string, len(objects))
	for i := range objects {
		o := &objects[i]
		switch o.Kind {
		case "Deployment", "StatefulSet", "DaemonSet": // a Job runs once, whatever changes later
		default:
			continue
		}
		var used []string
		for _, name := range manifest.ConfigMaps(o) {
			if sum, ok := sums[o.Namespace+"/"+name]; ok {
				used = append(used, name+"="+sum)
			}
		}
		all[i] = strings.Join(used, " ")
	}
	return all
}
