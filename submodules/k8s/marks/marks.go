// Package marks has the names, labels and annotations that mender-app writes on
// the objects of a cluster, and refuses manifests that try to write them.
//
// They say which application owns an object, and so what a removal deletes. With
// them in its manifests, one application could claim objects of another. It also says
// which objects of a release are its services, and how they are named. The build host
// and the device have to agree on both. The package knows objects only as data; it must
// not know a cluster.
package marks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// prefix begins all our labels, annotations and Secret types.
const prefix = "mender-app.io/"

// The labels, annotations and types that mender-app writes on objects.
const (
	App        = prefix + "app"         // label: on every applied object
	Inventory  = prefix + "inventory"   // label: on the inventory and the kept manifests
	CreatedFor = prefix + "created-for" // label: on a namespace that we created
	Stopped    = prefix + "stopped"     // annotation: on stopped objects; the values that START restores
	Images     = prefix + "images"      // annotation: on pods; the images that their image names meant
	Manifests  = prefix + "manifests"   // the type of the Secret with the kept manifests
	Device     = prefix + "device"      // annotation: on what a PURGE leaves; the device whose application had it
	ValuesOf   = prefix + "values-of"   // annotation: on pods; the content of the ConfigMaps with values that they use
)

// The annotations that authors may write on objects.
const (
	Keep      = prefix + "keep"       // "true": never delete this
	AllowPull = prefix + "allow-pull" // "true": its images may be pulled
	Wait      = prefix + "wait"       // "false": do not wait for this Job's end
	Values    = prefix + "values"     // "true": values of the device replace those of the same name in this ConfigMap
)

// namePrefix begins the names of our ConfigMaps and Secrets.
const namePrefix = "mender-app-"

var (
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)
)

func hashName(app string) string {
	sum := sha256.Sum256([]byte(app))
	return "x-" + hex.EncodeToString(sum[:10])
}

// Value is the value of our labels for an application: its name if that is a valid
// label value, otherwise a hash of it.
func Value(app string) string {
	if labelValue.MatchString(app) && !strings.HasPrefix(app, "x-") {
		return app
	}
	return hashName(app)
}

// InventoryName is the name of an application's inventory (a ConfigMap) and of
// its kept manifests (a Secret).
func InventoryName(app string) string {
	if dnsLabel.MatchString(app) && !strings.HasPrefix(app, "x-") {
		return namePrefix + app
	}
	return namePrefix + hashName(app)
}

// FieldManager is the manager that owns the fields an application applies; see
// server-side apply. Each application has one of its own.
func FieldManager(app string) string { return namePrefix + Value(app) }

// Check refuses an object of a release that has one of our names, types, labels or
// annotations, at any depth: a volume claim template has labels too. object is the
// decoded JSON or YAML.
func Check(group, kind, name string, object any) error {
	if group == "" && (kind == "ConfigMap" || kind == "Secret") {
		if strings.HasPrefix(name, namePrefix) {
			return fmt.Errorf("names that begin with %s are mender-app's own", namePrefix)
		}
		if o, ok := object.(map[string]any); ok && kind == "Secret" {
			if t, _ := o["type"].(string); strings.HasPrefix(t, prefix) {
				return fmt.Errorf("the type %s is mender-app's own", t)
			}
		}
	}
	return check(object)
}

func check(value any) error {
	switch v := value.(type) {
	case []any:
		for _, x := range v {
			if err := check(x); err != nil {
				return err
			}
		}
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			if k == "labels" || k == "annotations" {
				if err := checkKeys(k, v[k]); err != nil {
					return err
				}
			}
			if err := check(v[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkKeys refuses our keys in labels or annotations.
func checkKeys(field string, value any) error {
	m, _ := value.(map[string]any)
	var ours []string
	for k := range m {
		switch k {
		case Keep, AllowPull, Wait, Values:
		default:
			if strings.HasPrefix(k, prefix) {
				ours = append(ours, k)
			}
		}
	}
	if len(ours) == 0 {
		return nil
	}
	sort.Strings(ours)
	return fmt.Errorf("%s: %s is mender-app's own", field, ours[0])
}
