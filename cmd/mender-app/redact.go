package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// removedSecret takes the place of a secret.
const removedSecret = "[removed]"

const (
	minSecret  = 4       // characters; a shorter value would match everywhere
	maxSecret  = 1 << 16 // bytes
	maxSecrets = 20000
)

// redactor removes secrets from texts that leave the device: known values, and text that
// looks like a secret. It does not know what the texts are.
type redactor struct {
	values   map[string]bool
	kept     map[string]bool
	replacer *strings.Replacer
}

// Add adds a value, each of its lines, and its forms in JSON and base64.
func (s *redactor) Add(value string) {
	value = strings.TrimSpace(value)
	s.add(value)
	for line := range strings.Lines(value) {
		s.add(strings.TrimSpace(line))
	}
}

// Keep marks a word as not secret, even if a secret has this value.
func (s *redactor) Keep(word string) {
	if s.kept == nil {
		s.kept = map[string]bool{}
	}
	s.kept[word] = true
}

// harmless are common values of settings that reveal nothing.
var harmless = strings.Fields("true false yes none null production development debug info warn warning error localhost docker")

func (s *redactor) add(value string) {
	if s.kept[value] || slices.Contains(harmless, strings.ToLower(value)) {
		return
	}
	if len(value) < minSecret || len(value) > maxSecret || len(s.values) >= maxSecrets {
		return
	}
	if s.values == nil {
		s.values = map[string]bool{}
	}
	s.replacer = nil
	s.values[value] = true
	s.values[base64.StdEncoding.EncodeToString([]byte(value))] = true
	for _, html := range []bool{true, false} {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(html)
		if enc.Encode(value) == nil {
			text := strings.TrimSpace(out.String())
			s.values[text[1:len(text)-1]] = true // without the quotes around it
		}
	}
}

// AddURL adds the password and the user of a URL.
func (s *redactor) AddURL(text string) {
	for _, m := range userinfo().FindAllStringSubmatch(text, -1) {
		_, password, found := strings.Cut(m[2], ":")
		if !found {
			password = m[2] // a token
		}
		s.Add(password)
		if plain, err := url.PathUnescape(password); err == nil {
			s.Add(plain)
		}
	}
}

// AddAssignments adds the values of all assignments NAME=VALUE, one a line, as in a
// .env file.
func (s *redactor) AddAssignments(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		_, value, found := strings.Cut(line, "=")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		s.Add(value)
		s.Add(strings.Trim(value, `"'`))
	}
}

// AddNamed adds the values in a text whose names say that they are secret.
func (s *redactor) AddNamed(text string) {
	for _, m := range named().FindAllStringSubmatch(text, -1) {
		s.Add(strings.Trim(m[2], `"'`))
	}
	s.AddURL(text)
}

// Text that looks like a secret: a value with a telling name, the user and password
// of a URL, private keys.
var (
	telling   = `[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential|private[_-]?key|authorization|pin-value)[\w.-]*`
	named     = lazily(`(?i)(` + telling + `["']?[ \t]*[=:][ \t]*)((?:basic |bearer )?(?:"[^"\n]*"|'[^'\n]*'|[^\s,;\[\]{}"'&\\]+))`)
	inJSON    = lazily(`(?i)(` + telling + `[ \t]*[=:][ \t]*)((?:basic |bearer )?(?:'[^'"\n]*'|[^\s,;\[\]{}"'&\\]+))`)
	userinfo  = lazily(`([A-Za-z][A-Za-z0-9+.-]*://)([^\s/@"'<>]+)@`)
	privates  = lazily(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)
	ageSecret = lazily(`(?i)AGE-SECRET-KEY-[A-Z0-9-]+`)
)

// lazily compiles an expression on first use: most calls of the programs need none.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// Text removes secrets from a text.
func (s *redactor) Text(text string) string { return s.clean(text, named()) }

// JSON removes secrets from the strings of a JSON document, which stays valid.
func (s *redactor) JSON(text string) string { return s.clean(text, inJSON()) }

func (s *redactor) clean(text string, telling *regexp.Regexp) string {
	text = strings.ToValidUTF8(text, "?")
	text = privates().ReplaceAllString(text, removedSecret)
	text = ageSecret().ReplaceAllString(text, removedSecret)
	if s.replacer == nil {
		// If two values match at the same place, the replacer takes the first.
		longest := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
		var pairs []string
		for _, v := range slices.SortedFunc(maps.Keys(s.values), longest) {
			pairs = append(pairs, v, removedSecret)
		}
		s.replacer = strings.NewReplacer(pairs...)
	}
	text = s.replacer.Replace(text)
	text = userinfo().ReplaceAllString(text, "${1}"+removedSecret+"@")
	return telling.ReplaceAllString(text, "${1}"+removedSecret)
}

// Assignments returns a configuration file, TOML or assignments, with the values of
// the keys that keep allows. It drops comments, which may hold old secrets, and every
// line that is not a one-line assignment.
func (s *redactor) Assignments(text string, keep func(key string) bool) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, value, found := strings.Cut(line, "=")
		key = strings.TrimSpace(strings.TrimPrefix(key, "export "))
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "["):
			out.WriteString(s.Text(line) + "\n")
		case !found:
			out.WriteString(removedSecret + "\n")
		case keep(strings.ToLower(key)):
			value, _, _ = strings.Cut(value, " #")
			out.WriteString(key + " = " + s.Text(withoutUser(strings.TrimSpace(value))) + "\n")
		default:
			out.WriteString(s.Text(key) + " = " + removedSecret + "\n")
		}
	}
	return out.String()
}

// withoutUser removes what is before the last @ of a URL in a setting. A password that was
// not escaped may have any character, and userinfo would not match it.
func withoutUser(value string) string {
	scheme, rest, found := strings.Cut(value, "://")
	at := strings.LastIndex(rest, "@")
	if !found || at < 0 {
		return value
	}
	return scheme + "://" + removedSecret + rest[at:]
}

// eachText calls each for the strings of a JSON document, with their key.
func eachText(doc any, each func(key, value string)) {
	var visit func(key string, v any)
	visit = func(key string, v any) {
		switch v := v.(type) {
		case string:
			each(key, v)
		case []any:
			for _, e := range v {
				visit(key, e)
			}
		case map[string]any:
			for k, e := range v {
				visit(k, e)
			}
		}
	}
	visit("", doc)
}
