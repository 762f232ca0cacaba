package manifests

import (
	"path"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"
)

// A device gives Compose the variable PWD so that ${PWD}/data is ./data (rules.Here). That
// holds for the beginning of a path which Compose takes relative to the project's directory,
// and nowhere else.
var (
	mentionsPWD = regexp.MustCompile(`\$\$|\$PWD\b|\$\{PWD\b`)
	beginsPath  = regexp.MustCompile(`^\$(?:PWD|\{PWD(?::?-[^}$]*)?\})(?:[/:]|$)`)
)

// pathKeys are the keys whose values, or lists of values, are such paths. Those of env_file
// have path, and volumes have source, in their long form.
var pathKeys = []string{"volumes", "source", "env_file", "path", "label_file", "file", "context"}

// strayPWD finds a ${PWD} that is no such beginning. One that a .env sets stands for itself.
func (c *composer) strayPWD() (Place, bool) {
	if c.ownPWD {
		return Place{}, false
	}
	for _, f := range c.index.files {
		// Paths of a file in another directory are relative to that one.
		at := strayIn(f.root, "", path.Dir(f.name) == "." && len(c.dirs) == 0)
		if at != nil {
			return Place{File: f.name, Line: at.Line}, true
		}
	}
	return Place{}, false
}

// strayIn looks at the part of a file that a key has.
func strayIn(n *yaml.Node, key string, top bool) *yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		mentions := slices.DeleteFunc(mentionsPWD.FindAllString(n.Value, -1), func(s string) bool { return s == "$$" })
		if len(mentions) == 0 || top && len(mentions) == 1 && slices.Contains(pathKeys, key) && beginsPath.MatchString(n.Value) {
			return nil
		}
		return n
	}
	for i, child := range n.Content { // an alias has none: its anchor is looked at
		if n.Kind != yaml.MappingNode {
			if at := strayIn(child, key, top); at != nil {
				return at
			}
		} else if i%2 == 1 { // names are not interpolated
			if at := strayIn(child, n.Content[i-1].Value, top); at != nil {
				return at
			}
		}
	}
	return nil
}
