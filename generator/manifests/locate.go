package manifests

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// yamlIndex finds the line of a key in the files of a compose project. compose-go
// does not keep lines.
type yamlIndex struct {
	files []indexed
}

type indexed struct {
	name string
	text string
	root *yaml.Node
}

// newIndex parses the files. It ignores files that are not YAML: the loader
// reports them.
func newIndex(dir string, names []string) *yamlIndex {
	x := &yamlIndex{}
	for _, name := range names {
		f := indexed{name: name}
		if b, err := readManifest(dir, name); err == nil {
			f.text = string(b)
			var doc yaml.Node
			if yaml.Unmarshal(b, &doc) == nil && len(doc.Content) > 0 {
				f.root = doc.Content[0]
			}
		}
		x.files = append(x.files, f)
	}
	return x
}

// find returns the place of the last definition of the key path: a later file
// overrides the earlier ones. If the path does not exist, the place is that
// of its longest part that does.
func (x *yamlIndex) find(keys ...string) Place {
	best, depth := Place{File: "."}, -1
	for _, f := range x.files {
		line, d := descend(f.root, keys)
		if d >= depth {
			best, depth = Place{File: f.name, Line: line}, d
		}
	}
	if depth == 0 {
		best.Line = 0
	}
	return best
}

func descend(n *yaml.Node, keys []string) (line, depth int) {
	for _, k := range keys {
		for n != nil && n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n == nil {
			break
		}
		var next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == k {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(k); err == nil && i >= 0 && i < len(n.Content) {
				line, next = n.Content[i].Line, n.Content[i]
			}
		}
		if next == nil {
			break
		}
		depth++
		n = next
	}
	return line, depth
}

var (
	lineOf      = regexp.MustCompile(`line (\d+)`)
	keyPath     = regexp.MustCompile(`(services|volumes|networks|configs|secrets)((?:\.[A-Za-z0-9_\-\[\]]+)+)`)
	serviceOf   = regexp.MustCompile(`service "([^"]+)"`)
	oneName     = regexp.MustCompile(`^services\.(deploy\.replicas|scale): can't set container_name and (\S+) `)
	requiredOne = regexp.MustCompile(`required variable (\w+) is missing a value`)
	fileOf      = regexp.MustCompile(`^(?:validating|failed to parse) ([^:]+): `)
)

// explain adds file and line to an error of compose-go, and makes it one line.
func (c *composer) explain(err error) error {
	text := strings.Join(strings.Fields(c.short(err.Error())), " ")
	var have *Error
	if errors.As(err, &have) {
		return have
	}
	place := c.index.find()
	if m := fileOf.FindStringSubmatch(text); m != nil {
		place = Place{File: m[1]}
		text = strings.TrimPrefix(text, m[0])
	}
	x := c.index
	if place.File != "." && place.File != "" {
		if only := x.only(place.File); only != nil {
			x = only
		}
	}
	if e := x.unknownKeys(text); e != nil {
		return e
	}
	if m := oneName.FindStringSubmatch(text); m != nil {
		return &Error{Place: x.find("services", m[2], "container_name"), Text: fmt.Sprintf("service %q has a container_name and several containers (%s)", m[2], m[1]),
			Hint: "a name is for one container: leave container_name out"}
	}
	switch {
	case keyPath.MatchString(text):
		m := keyPath.FindStringSubmatch(text)
		place = x.find(append([]string{m[1]}, strings.Split(strings.Trim(m[2], "."), ".")...)...)
	case lineOf.MatchString(text):
		all := lineOf.FindAllStringSubmatch(text, -1)
		place.Line, _ = strconv.Atoi(all[len(all)-1][1])
	case serviceOf.MatchString(text):
		place = x.find("services", serviceOf.FindStringSubmatch(text)[1])
	}
	hint := ""
	if errors.Is(err, errOutside) {
		hint = "move it into the manifests directory"
	} else if m := requiredOne.FindStringSubmatch(text); m != nil {
		hint = fmt.Sprintf("set it in .env, or pass this host's with --env-from-host %s", m[1])
	}
	return &Error{Place: place, Text: text, Hint: hint}
}

// only narrows the index to one file.
func (x *yamlIndex) only(name string) *yamlIndex {
	for _, f := range x.files {
		if f.name == name {
			return &yamlIndex{files: []indexed{f}}
		}
	}
	return nil
}
