package manifest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// SetData returns the JSON of a ConfigMap in which the entries of data named in values
// are replaced.
func SetData(o *Object, values map[string]string) ([]byte, error) {
	data, err := change(o.JSON, []string{"data"}, func(data []byte) ([]byte, error) {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, err
		}
		for name, v := range values {
			if _, has := m[name]; !has {
				continue
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			m[name] = text
		}
		return json.Marshal(m)
	})
	if err != nil {
		return nil, o.Errorf("data: %w", err)
	}
	return data, nil
}

// Use is something in the same namespace that an object names: what its pods read, mount or
// run as, or where it leads.
type Use struct{ Group, Kind, Name string }

// ConfigMaps returns the names of the ConfigMaps that the pods of an object read, sorted:
// as variables or as files.
func ConfigMaps(o *Object) (list []string) {
	for _, u := range Uses(o) {
		if u.Kind == "ConfigMap" {
			list = append(list, u.Name)
		}
	}
	return list
}

// Uses returns what an object names, sorted, as far as its kind is one of Kubernetes' own.
func Uses(o *Object) []Use {
	at := PodPath(o.Group(), o.Kind)
	switch o.Group() + "/" + o.Kind {
	case "networking.k8s.io/Ingress", "autoscaling/HorizontalPodAutoscaler":
		at = "spec"
	}
	if at == "" {
		return nil
	}
	found := map[Use]bool{}
	_, _ = change(o.JSON, strings.Split(at, "."), func(spec []byte) ([]byte, error) {
		var v any
		err := json.Unmarshal(spec, &v)
		findUses(v, found)
		return spec, err
	})
	return slices.SortedFunc(maps.Keys(found), func(a, b Use) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
}

// findUses looks for references below v.
func findUses(v any, found map[Use]bool) {
	note := func(kind string, name any) {
		if name, ok := name.(string); ok && name != "" {
			found[Use{Kind: kind, Name: name}] = true
		}
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			findUses(x, found)
		}
	case map[string]any:
		for key, x := range v {
			ref, _ := x.(map[string]any)
			switch key {
			case "configMap", "configMapRef", "configMapKeyRef":
				note("ConfigMap", ref["name"])
			case "secret", "secretRef", "secretKeyRef", "nodePublishSecretRef":
				note("Secret", ref["name"])
				note("Secret", ref["secretName"])
			case "secretName": // of an Ingress
				note("Secret", x)
			case "imagePullSecrets":
				list, _ := x.([]any)
				for _, e := range list {
					m, _ := e.(map[string]any)
					note("Secret", m["name"])
				}
			case "persistentVolumeClaim":
				note("PersistentVolumeClaim", ref["claimName"])
			case "serviceAccountName", "serviceAccount":
				note("ServiceAccount", x)
			case "service": // of an Ingress
				note("Service", ref["name"])
			case "scaleTargetRef":
				kind, _ := ref["kind"].(string)
				name, _ := ref["name"].(string)
				api, _ := ref["apiVersion"].(string)
				group, _, _ := strings.Cut(api, "/")
				if kind != "" && name != "" {
					found[Use{group, kind, name}] = true
				}
			default:
				findUses(x, found)
			}
		}
	}
}
