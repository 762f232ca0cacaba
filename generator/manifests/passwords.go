package manifests

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"gopkg.in/yaml.v3"
)

// secretName matches names of variables whose values are secret as a rule, and
// secretEnd the ends of names that only look so.
var (
	secretName = regexp.MustCompile(`(?i)(^|_)(PASS|PASSWD|PASSWORD|PASSPHRASE|PWD|SECRET|TOKEN|CREDENTIALS?|API_?KEY|ACCESS_?KEY|SECRET_?KEY|PRIVATE_?KEY)(_?\d+)?$`)
	secretURL  = regexp.MustCompile(`[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@$]+)@`)
	harmless   = regexp.MustCompile(`(?i)^(|true|false|yes|no|on|off|none|null|\d{1,2}|/run/secrets/.*|\$.*)$`)
)

// tokens are the forms of credentials of well-known services, as their makers document
// them: GitHub, GitLab, AWS, Slack, Stripe, npm, Docker Hub and JSON Web Tokens.
var tokens = regexp.MustCompile(`\b(gh[opsur]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,}|glpat-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|xox[abpr]-[A-Za-z0-9-]{20,}|sk_live_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{36}|dckr_pat_[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})`)

// exposed is a secret that a file has in plain.
type exposed struct {
	what string // the variable, or the kind of thing; never the value
	line int
}

// isSecret reports whether a variable with this value is a secret in plain.
func isSecret(name, value string) bool {
	if m := secretURL.FindStringSubmatch(value); m != nil {
		return true
	}
	return tokens.MatchString(value) || secretName.MatchString(name) && !harmless.MatchString(value)
}

// exposedIn finds the passwords and tokens in an env file or a YAML file.
func exposedIn(name string, b []byte) (list []exposed) {
	switch {
	case manifest.IsManifest(name):
		dec := yaml.NewDecoder(bytes.NewReader(b))
		for {
			var doc yaml.Node
			if dec.Decode(&doc) != nil {
				return list
			}
			list = append(list, exposedInYAML(&doc, 0)...)
		}
	case isEnvFile(name):
		lines := bufio.NewScanner(bytes.NewReader(b))
		for n := 1; lines.Scan(); n++ {
			key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export "), "=")
			if ok && !strings.HasPrefix(key, "#") && isSecret(strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)) {
				list = append(list, exposed{strings.TrimSpace(key), n})
			}
		}
	}
	return list
}

func isEnvFile(name string) bool {
	return path.Ext(name) == ".env" || strings.HasPrefix(path.Base(name), ".env.")
}

// maxDepth bounds how deep YAML is looked into.
const maxDepth = 64

// exposedInYAML finds values of environment, and tokens anywhere.
func exposedInYAML(n *yaml.Node, depth int) (list []exposed) {
	if depth > maxDepth {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		if tokens.MatchString(n.Value) {
			list = append(list, exposed{"a token", n.Line})
		}
		return list
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "environment" {
			list = append(list, environment(c)...)
			continue
		}
		list = append(list, exposedInYAML(c, depth+1)...)
	}
	return list
}

// environment finds the secrets of a service's environment, in either of its forms.
func environment(n *yaml.Node) (list []exposed) {
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 1 && c.Kind == yaml.ScalarNode && isSecret(n.Content[i-1].Value, c.Value):
			list = append(list, exposed{n.Content[i-1].Value, c.Line})
		case n.Kind == yaml.SequenceNode && c.Kind == yaml.ScalarNode:
			if key, value, ok := strings.Cut(c.Value, "="); ok && isSecret(key, value) {
				list = append(list, exposed{key, c.Line})
			}
		}
	}
	return list
}

// exposedText warns of the secrets in a file.
func exposedText(name string, list []exposed) string {
	var what []string
	for _, e := range list {
		what = append(what, fmt.Sprintf("%s (line %d)", e.what, e.line))
	}
	what = slices.Compact(what)
	verb := "is"
	if len(what) > 1 {
		verb = "are"
	}
	if rest := len(what) - maxWarnings; rest > 0 {
		what = append(what[:maxWarnings], fmt.Sprintf("%d more", rest))
	}
	return fmt.Sprintf("%s: %s %s shipped in plain, and whoever has the artifact can read it: make a secret of it and encrypt that with --encrypt-secrets-to, or set it on the device; if it is no secret, say --plain-secret %s",
		name, strings.Join(what, ", "), verb, name)
}

// ExposedVariables lists the names of variables that are shipped in .env and seem to be
// secrets.
func ExposedVariables(ship []Variable) (list []string) {
	for _, v := range ship {
		if isSecret(v.Name, v.Value) {
			list = append(list, v.Name)
		}
	}
	return list
}
