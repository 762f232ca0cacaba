package input

import (
	"fmt"
	"net/url"
	"strings"
)

// Source is where an artifact comes from: a file or a URL. A URL may have a user, a
// password or a token. Whatever prints a Source leaves these out; only Reveal has them.
type Source string

// Reveal returns the source as it is. It must not be printed, stored or made an argument of
// a program.
func (s Source) Reveal() string { return string(s) }

// IsURL reports whether the source is a URL and not the name of a file.
func (s Source) IsURL() bool {
	scheme, _, ok := strings.Cut(string(s), "://")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}

// String returns the source without the user, password, query and fragment of a URL.
func (s Source) String() string {
	scheme, _, ok := strings.Cut(string(s), "://")
	if !ok || strings.ContainsAny(scheme, "/ ") {
		return string(s)
	}
	u, err := url.Parse(string(s))
	if err != nil || u.Host == "" {
		return scheme + "://…"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Format implements fmt.Formatter, for each verb.
func (s Source) Format(f fmt.State, verb rune) { fmt.Fprintf(f, fmt.FormatString(f, verb), s.String()) }

// MarshalText implements encoding.TextMarshaler.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
