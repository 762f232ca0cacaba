package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Keys lists all keys of app.toml, sorted, such as "upgrades.from_versions", or
// "depends[].name" for a list of tables.
func Keys() []string {
	var list []string
	collectKeys(reflect.TypeFor[Policy](), "", &list)
	slices.Sort(list)
	return list
}

func collectKeys(t reflect.Type, prefix string, list *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("toml") == "-" {
			continue
		}
		key := prefix + f.Tag.Get("toml")
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch { // a map is one key: its names are free
		case ft == reflect.TypeFor[Migrate](): // a text or a table
			*list = append(*list, key)
			collectKeys(ft, key+".", list)
		case ft.Kind() == reflect.Struct:
			collectKeys(ft, key+".", list)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			collectKeys(ft.Elem(), key+"[].", list)
		default:
			*list = append(*list, key)
		}
	}
}

// known has the keys and the tables that contain them, without the brackets of lists.
var known = sync.OnceValue(func() map[string]bool {
	m := map[string]bool{}
	for _, key := range Keys() {
		key = strings.ReplaceAll(key, "[]", "")
		for ; key != ""; key = key[:max(0, strings.LastIndexByte(key, '.'))] {
			m[key] = true
		}
	}
	return m
})

// free are tables whose keys are not fixed.
var free = map[string]bool{"platform.releases.provides": true, "reapply.filter": true}

// checkKeys refuses the first key, in alphabetical order, that is not a key of a
// policy. at is the path for people; key is the path without indexes of lists.
func checkKeys(v any, at, key string) error {
	switch v := v.(type) {
	case map[string]any:
		if free[key] {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below, belowAt := join(key, name), join(at, name)
			if strings.Contains(name, ".") || !known()[below] {
				return bad(belowAt, "unknown key")
			}
			if err := checkKeys(v[name], belowAt, below); err != nil {
				return err
			}
		}
	case []map[string]any: // a list of tables in TOML
		for i, e := range v {
			if err := checkKeys(e, fmt.Sprintf("%s[%d]", at, i), key); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if err := checkKeys(e, fmt.Sprintf("%s[%d]", at, i), key); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(path, name string) string {
	name = clip.Text(name)
	if path == "" {
		return name
	}
	return path + "." + name
}
