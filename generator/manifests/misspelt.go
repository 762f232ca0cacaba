package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/compose-spec/compose-go/v2/schema"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/mender-app/mender-app/artifact/similar"
)

// How compose-go reports a key that the Compose specification does not have: the
// first in services, the second elsewhere, with the path of the object before it.
var (
	noSuchKey  = regexp.MustCompile(`^(\S+)\.(\S+) false schema$`)
	noSuchKeys = regexp.MustCompile(`^(?:(\S+) )?additional properties ('[^']*'(?:, '[^']*')*) not allowed$`)
)

// unknownKeys reads a message of compose-go about keys that do not exist. It returns
// an error with the line of the first of them and a suggestion; nil if the message is
// about something else.
func (x *yamlIndex) unknownKeys(text string) *Error {
	var path, keys []string
	if m := noSuchKey.FindStringSubmatch(text); m != nil {
		path, keys = strings.Split(m[1], "."), []string{m[2]}
	} else if m := noSuchKeys.FindStringSubmatch(text); m != nil {
		if m[1] != "" {
			path = strings.Split(m[1], ".")
		}
		for _, k := range strings.Split(m[2], ", ") {
			keys = append(keys, strings.Trim(k, "'"))
		}
	} else {
		return nil
	}
	slices.Sort(keys) // compose-go has them in the random order of a map
	known := composeSchema().keys(path)
	var names, meant []string
	for _, k := range keys {
		names = append(names, strings.Join(append(slices.Clone(path), k), "."))
		if w := similar.Word(k, known); w != "" && !slices.Contains(meant, w) {
			meant = append(meant, w)
		}
	}
	e := &Error{Place: x.find(append(path, keys[0])...), Text: names[0] + " is not a key of Compose files"}
	if len(names) > 1 {
		e.Text = strings.Join(names, ", ") + " are not keys of Compose files"
	}
	switch {
	case len(path) == 0 && x.servicesAtTop(keys):
		e.Hint = "put services below services:; a file of the first version of Compose has them at the top, and no Compose reads it any more"
	case len(meant) > 0:
		e.Hint = "did you mean " + strings.Join(meant, " and ") + "?"
	}
	return e
}

// servicesAtTop reports whether one of these keys at the top of a file is a service.
func (x *yamlIndex) servicesAtTop(keys []string) bool {
	for _, f := range x.files {
		if _, depth := descend(f.root, []string{"services"}); depth > 0 {
			continue
		}
		for _, k := range keys {
			for _, has := range []string{"image", "build"} {
				if _, depth := descend(f.root, []string{k, has}); depth == 2 {
					return true
				}
			}
		}
	}
	return false
}

// schemaNode is a part of the Compose specification's JSON schema.
type schemaNode struct {
	Ref         string                `json:"$ref"`
	Properties  map[string]schemaNode `json:"properties"`
	Patterns    map[string]schemaNode `json:"patternProperties"`
	Additional  json.RawMessage       `json:"additionalProperties"` // false, or a node
	Items       *schemaNode           `json:"items"`
	AllOf       []schemaNode          `json:"allOf"`
	OneOf       []schemaNode          `json:"oneOf"`
	AnyOf       []schemaNode          `json:"anyOf"`
	Definitions map[string]schemaNode `json:"definitions"`
	Defs        map[string]schemaNode `json:"$defs"`
}

// composeSchema is the schema that compose-go validates with.
var composeSchema = sync.OnceValue(func() *schemaNode {
	n := &schemaNode{}
	_ = json.Unmarshal([]byte(schema.Schema), n) // without it, nothing is suggested
	return n
})

// keys lists the keys that the object at a path may have.
func (root *schemaNode) keys(path []string) []string {
	nodes := []schemaNode{*root}
	for _, key := range path {
		var next []schemaNode
		for _, n := range root.resolved(nodes, 0) {
			next = append(next, n.child(key)...)
		}
		nodes = next
	}
	var list []string
	for _, n := range root.resolved(nodes, 0) {
		list = append(list, slices.Sorted(maps.Keys(n.Properties))...)
	}
	return list
}

// resolved follows references, parts and alternatives.
func (root *schemaNode) resolved(nodes []schemaNode, depth int) (list []schemaNode) {
	if depth > 16 {
		return nil
	}
	for _, n := range nodes {
		if name := n.Ref[strings.LastIndex(n.Ref, "/")+1:]; name != "" {
			for _, set := range []map[string]schemaNode{root.Definitions, root.Defs} {
				if d, ok := set[name]; ok {
					list = append(list, root.resolved([]schemaNode{d}, depth+1)...)
				}
			}
		}
		list = append(list, n)
		list = append(list, root.resolved(slices.Concat(n.AllOf, n.OneOf, n.AnyOf), depth+1)...)
	}
	return list
}

// child is what the value of a key, or of an index of a list, may be.
func (n *schemaNode) child(key string) (list []schemaNode) {
	if p, ok := n.Properties[key]; ok {
		return []schemaNode{p}
	}
	if _, err := strconv.Atoi(key); err == nil && n.Items != nil {
		return []schemaNode{*n.Items}
	}
	for pattern, p := range n.Patterns {
		if re, err := regexp.Compile(pattern); err == nil && re.MatchString(key) {
			list = append(list, p)
		}
	}
	var more schemaNode
	if json.Unmarshal(n.Additional, &more) == nil {
		list = append(list, more)
	}
	return list
}

// checkProfiles warns of profiles that no service has.
func (c *composer) checkProfiles(wanted []string, p *types.Project) {
	var known []string
	for _, services := range []types.Services{p.Services, p.DisabledServices} {
		for _, s := range services {
			known = append(known, s.Profiles...)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range wanted {
		if name == "" || name == "*" || slices.Contains(known, name) {
			continue
		}
		hint := "there are no profiles"
		if len(known) > 0 {
			hint = "there are " + strings.Join(known, ", ")
		}
		if meant := similar.Meant(name, known); meant != "" {
			hint = meant
		}
		c.warn(c.index.find("services"), "no service has the profile %s: %s", name, hint)
	}
}

// plainVariable is a variable without a default in a value: $NAME or ${NAME}.
var plainVariable = regexp.MustCompile(`\$\$|\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// noteUnset notes the variables without a default of a value that are not set.
// unset are those that were looked up and not found.
func (c *composer) noteUnset(value string, unset map[string]bool) {
	for _, m := range plainVariable.FindAllStringSubmatch(value, -1) {
		if name := m[1] + m[2]; unset[name] {
			c.unset[name] = true
		}
	}
}

// checkUnset warns of the variables that are not set, with the first place of each. It
// refuses those that say where a person works: without them a path is another one.
func (c *composer) checkUnset() error {
	for _, name := range slices.Sorted(maps.Keys(c.unset)) {
		if slices.Contains(PersonOwn, name) {
			return &Error{Place: c.index.mentions(name), Text: fmt.Sprintf("${%s} is empty on the device, where nobody starts the project", name), Hint: homeHint + "; or set it in .env"}
		}
		c.warn(c.index.mentions(name), "the variable %s is not set: it is empty on the device; set it in .env, pass this host's with --env-from-host %s, or give it a default, ${%s:-…}", name, name, name)
	}
	if place, ok := c.strayPWD(); ok {
		return &Error{Place: place, Text: "${PWD} begins no path of the project here, and nobody starts the project on a device",
			Hint: homeHint + "; or set it in .env"}
	}
	for _, name := range slices.Sorted(maps.Keys(c.personal)) {
		if _, used := c.used[name]; used {
			return &Error{Place: c.personal[name], Text: name + " needs a variable of the person who starts the project, and nobody does on a device", Hint: homeHint}
		}
	}
	return nil
}

// mentions finds the first line that has a variable without a default.
func (x *yamlIndex) mentions(name string) Place {
	re := regexp.MustCompile(fmt.Sprintf(`\$(%[1]s\b|\{%[1]s\})`, regexp.QuoteMeta(name)))
	for _, f := range x.files {
		for i, line := range strings.Split(f.text, "\n") {
			if re.MatchString(line) {
				return Place{File: f.name, Line: i + 1}
			}
		}
	}
	return x.find()
}

// mentionsText finds the first line that has a text.
func (x *yamlIndex) mentionsText(text string) Place {
	for _, f := range x.files {
		for i, line := range strings.Split(f.text, "\n") {
			if strings.Contains(line, text) {
				return Place{File: f.name, Line: i + 1}
			}
		}
	}
	return x.find()
}

// noteAbsent notes variables that this host has and that do not count, because nobody
// passed them.
func (c *composer) noteAbsent() {
	if c.opts.Host == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.absent)) {
		if !c.unset[name] && !slices.Contains(deviceOwn, name) && c.opts.Host(name) {
			c.note(c.index.mentionsText(name), "the variable %s of this host does not count: --env-from-host %s passes it", name, name)
		}
	}
}
