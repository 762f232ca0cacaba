package manifest

import (
	"os"
	"strconv"
	"strings"

	yamlv3 "gopkg.in/yaml.v3"
)

// Position returns the line of a field of o in its file below dir, the directory
// that o was read from. The field is written as the API server writes it
// (spec.template.spec.containers[0].image). If it is not found, Position returns the
// line of its deepest part that exists, or else the object's.
func Position(dir string, o *Object, field string) int {
	if o.Sealed {
		return o.Line
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return o.Line
	}
	defer root.Close()
	f, err := root.Open(o.File)
	if err != nil {
		return o.Line
	}
	defer f.Close()
	line := o.Line
	_ = documents(o.File, f, func(d document) error {
		if d.index != o.doc {
			return nil
		}
		// Nearly all JSON is YAML. If tabs or escapes differ, the result is the object's
		// line.
		var n yamlv3.Node
		if yamlv3.Unmarshal(d.text, &n) == nil && len(n.Content) == 1 {
			at := n.Content[0]
			for _, i := range o.item {
				at = item(value(at, "items"), i)
			}
			if l := find(at, field); l > 0 {
				line = d.start + l - 1
			}
		}
		return errFound
	})
	return line
}

var errFound = &Error{}

// find returns the line of the deepest part of field there is below n, 0 for
// none.
func find(n *yamlv3.Node, field string) int {
	line := 0
	if n != nil {
		line = n.Line
	}
	for field != "" && n != nil {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		var part string
		switch {
		case field[0] == '[':
			end := strings.IndexByte(field, ']')
			if end < 0 {
				return line
			}
			part, field = field[1:end], field[end+1:]
			if i, err := strconv.Atoi(part); err == nil && n.Kind == yamlv3.SequenceNode {
				n = item(n, i)
			} else if k, v, ok := strings.Cut(part, "="); ok && n.Kind == yamlv3.SequenceNode {
				n = itemWith(n, k, strings.Trim(v, `"`))
			} else {
				n = value(n, strings.Trim(part, `"`))
			}
		default:
			field = strings.TrimPrefix(field, ".")
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			part, field = field[:end], field[end:]
			for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == part {
					line = n.Content[i].Line
				}
			}
			n = value(n, part)
			continue
		}
		if n != nil {
			line = n.Line
		}
	}
	return line
}

// value returns the value of a key, nil if there is none.
func value(n *yamlv3.Node, key string) *yamlv3.Node {
	for i := 0; n != nil && n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func item(n *yamlv3.Node, i int) *yamlv3.Node {
	if n == nil || n.Kind != yamlv3.SequenceNode || i < 0 || i >= len(n.Content) {
		return nil
	}
	return n.Content[i]
}

// itemWith returns the first item that has the value at a key: how server-side
// apply names items.
func itemWith(n *yamlv3.Node, key, want string) *yamlv3.Node {
	for _, c := range n.Content {
		if v := value(c, key); v != nil && v.Value == want {
			return c
		}
	}
	return nil
}
