package store

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// extra holds the fields of a JSON object that this version does not know, so
// that they survive a rewrite by it.
type extra map[string]json.RawMessage

// decode reads a JSON object into the struct that v points to. It returns the unknown
// fields. Usually there are none, and one pass is enough.
func decode(data []byte, v any) (extra, error) {
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if strict.Decode(v) == nil && len(bytes.TrimSpace(data[strict.InputOffset():])) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return nil, err
	}
	all := extra{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for _, name := range fieldNames(reflect.TypeOf(v).Elem()) {
		delete(all, name)
	}
	return all, nil
}

// encode writes the struct v and the fields that decode did not know.
func encode(v any, rest extra) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil || len(rest) == 0 {
		return data, err
	}
	all := extra{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for name, value := range rest {
		if _, known := all[name]; !known {
			all[name] = value
		}
	}
	return json.Marshal(all)
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() == reflect.Struct {
			names = append(names, fieldNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}
