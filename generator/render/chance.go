package render

import (
	"slices"
	"strings"
	"time"
)

// chance takes the place of the functions of templates whose results differ from call to
// call. Each of them has two results, one for each rendering.
type chance struct {
	called map[string]bool
	other  func(name string) bool // the function gives its other result
}

// certificate has the fields of the certificates of helm's functions.
type certificate struct{ Cert, Key string }

// of notes the call of a function and returns its result.
func of[T any](c *chance, name string, one, other T) T {
	c.called[name] = true
	if c.other(name) {
		return other
	}
	return one
}

// functions are those that chance takes the place of.
func (c *chance) functions() map[string]any {
	repeat := func(name, one, other string) func(int) string {
		return func(n int) string { return strings.Repeat(of(c, name, one, other), max(n, 0)) }
	}
	f := map[string]any{
		"randAlphaNum": repeat("randAlphaNum", "a", "b"),
		"randAlpha":    repeat("randAlpha", "a", "b"),
		"randAscii":    repeat("randAscii", "a", "b"),
		"randNumeric":  repeat("randNumeric", "3", "8"),
		"randBytes":    repeat("randBytes", "YWFh", "YmJi"),
		"randInt":      func(low, high int) int { return of(c, "randInt", low, max(high-1, low)) },
		"uuidv4": func() string {
			return of(c, "uuidv4", "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb")
		},
		"shuffle": func(s string) string {
			one := []rune(s)
			slices.Sort(one)
			other := slices.Clone(one)
			slices.Reverse(other)
			return of(c, "shuffle", string(one), string(other))
		},
		"now": func() time.Time {
			return of(c, "now", time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), time.Date(2039, 12, 30, 21, 58, 57, 0, time.UTC))
		},
		"ago": func(any) string { return of(c, "ago", "1s", "2h0m0s") },
	}
	for _, name := range []string{"genPrivateKey", "bcrypt", "htpasswd", "encryptAES"} {
		f[name] = func(...any) string { return of(c, name, "a", "b") }
	}
	for _, name := range []string{"genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey"} {
		f[name] = func(...any) certificate { return of(c, name, certificate{"a", "a"}, certificate{"b", "b"}) }
	}
	return f
}
