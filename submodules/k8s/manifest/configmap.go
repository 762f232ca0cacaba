package manifest

import (
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

// ConfigMaps returns the names of the ConfigMaps that the pods of an object read, sorted:
// as variables or as files.
func ConfigMaps(o *Object) []string {
	at := PodPath(o.Group(), o.Kind)
	if at == "" {
		return nil
	}
	found := map[string]bool{}
	_, _ = change(o.JSON, strings.Split(at, "."), func(spec []byte) ([]byte, error) {
		var v any
		err := json.Unmarshal(spec, &v)
		findConfigMaps(v, found)
		return spec, err
	})
	return slices.Sorted(maps.Keys(found))
}

// findConfigMaps looks for references below v.
func findConfigMaps(v any, found map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			findConfigMaps(x, found)
		}
	case map[string]any:
		for key, x := range v {
			switch key {
			case "configMap", "configMapRef", "configMapKeyRef":
				if ref, ok := x.(map[string]any); ok {
					if name, ok := ref["name"].(string); ok {
						found[name] = true
					}
				}
			default:
				findConfigMaps(x, found)
			}
		}
	}
}
