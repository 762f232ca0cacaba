// Package reach says how much of a node the objects of Kubernetes manifests may reach. For
// each kind and each field of a pod somebody has decided what it may do; a kind or a field
// that is not in the tables needs the level trusted.
//
// The sub-module asks it before it applies a release, and app-gen asks it of what it ships.
// It knows manifests, and neither clusters nor stores.
package reach

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/level"
)

// Need says which level an object needs, and for what.
type Need struct {
	Object *manifest.Object
	Level  level.Level
	What   string // such as "spec.hostPID" or "spec.volumes.hostPath"
}

func (n Need) String() string { return n.Object.Kind + " " + n.Object.Name + " has " + n.What }

// Needs lists what in a release needs more than level.Confined, in the order of the objects.
// namespace is the application's.
func Needs(objects []manifest.Object, namespace string) (needs []Need) {
	accounts := map[string]bool{}
	for i := range objects {
		if o := &objects[i]; o.Group() == "" && o.Kind == "ServiceAccount" {
			accounts[cmp.Or(o.Namespace, namespace)+"/"+o.Name] = true
		}
	}
	for i := range objects {
		w := &walker{o: &objects[i], accounts: accounts, namespace: namespace}
		w.walk()
		needs = append(needs, w.needs...)
	}
	return needs
}

// walker goes through an object.
type walker struct {
	o         *manifest.Object
	accounts  map[string]bool // that the release brings, as NAMESPACE/NAME
	namespace string
	needs     []Need
}

func (w *walker) need(l level.Level, format string, args ...any) {
	w.needs = append(w.needs, Need{w.o, l, fmt.Sprintf(format, args...)})
}

func (w *walker) walk() {
	group, kind := w.o.Group(), w.o.Kind
	check, known := kinds[group+"/"+kind]
	if !known {
		w.need(level.Trusted, "the kind %s in %q, which may change more than its own pods", kind, w.o.APIVersion)
		return
	}
	var object map[string]any
	if json.Unmarshal(w.o.JSON, &object) != nil {
		w.need(level.Trusted, "no JSON object")
		return
	}
	if at := manifest.PodPath(group, kind); at != "" {
		parts := strings.Split(at, ".")
		template := object
		for _, p := range parts[:len(parts)-1] {
			template, _ = template[p].(map[string]any)
		}
		if meta, ok := template["metadata"].(map[string]any); ok {
			if a, ok := meta["annotations"].(map[string]any); ok {
				annotations(w, "annotations of its pods", a)
			}
		}
		if spec, ok := template[parts[len(parts)-1]].(map[string]any); ok {
			w.object(podFields, at+".", spec)
		}
	}
	if check != nil {
		check(w, "spec", object["spec"])
	}
}

// field is what is decided about a field.
type field struct {
	of    fieldsOf // of the object, or of each element of a list; nil: all there is harmless
	check func(w *walker, key string, value any)
}

type fieldsOf map[string]field

func (w *walker) object(fields fieldsOf, at string, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		if value == nil || value == false || value == "" {
			continue
		}
		f, ok := fields[key]
		if !ok {
			w.need(level.Trusted, "%s%s, which this version of mender-app has not decided about", at, key)
			continue
		}
		if f.check != nil {
			f.check(w, at+key, value)
		}
		if f.of == nil {
			continue
		}
		for _, v := range list(value) {
			if m, ok := v.(map[string]any); ok {
				w.object(f.of, at+key+".", m)
			} else {
				w.need(level.Trusted, "%s%s that is no object", at, key)
			}
		}
	}
}

func list(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

// needs makes a check that a value, whatever it is, needs a level.
func needs(l level.Level) func(*walker, string, any) {
	return func(w *walker, key string, v any) {
		if text, ok := v.(string); ok {
			w.need(l, "%s: %s", key, text)
			return
		}
		w.need(l, "%s", key)
	}
}

// but makes a check that all texts of a value but these need a level.
func but(l level.Level, harmless ...string) func(*walker, string, any) {
	return func(w *walker, key string, v any) {
		for _, e := range list(v) {
			if text := fmt.Sprint(e); !slices.Contains(harmless, text) {
				w.need(l, "%s: %s", key, text)
			}
		}
	}
}
