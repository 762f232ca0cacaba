package image

import (
	"fmt"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// ref is the name of an image in full: "docker.io/library/web" and "1".
type ref struct {
	name string
	tag  string
}

const (
	defaultDomain = "docker.io/"
	defaultRepo   = "library/"
)

// parseRef reads a name as Docker does. Without a registry the registry is Docker
// Hub; without a tag the tag is "latest". A name with a digest is invalid in an
// archive.
func parseRef(s string) (ref, error) {
	bad := func(why string) (ref, error) {
		return ref{}, fmt.Errorf("image name %q: %s", clip.Text(s), why)
	}
	if strings.Contains(s, "@") {
		return bad("a digest cannot name an image in an archive")
	}
	if len(s) > 512 {
		return bad("too long")
	}
	r := ref{name: s, tag: "latest"}
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, '/') {
		r = ref{name: s[:i], tag: s[i+1:]}
	}
	if !validTag(r.tag) {
		return bad("malformed tag")
	}
	domain, path, ok := strings.Cut(r.name, "/")
	if !ok || (!strings.ContainsAny(domain, ".:") && domain != "localhost" && strings.ToLower(domain) == domain) {
		domain, path = "docker.io", r.name
	}
	if domain == "index.docker.io" {
		domain = "docker.io"
	}
	if domain == "docker.io" && !strings.Contains(path, "/") {
		path = defaultRepo + path
	}
	for part := range strings.SplitSeq(path, "/") {
		if !validPart(part) {
			return bad("malformed repository")
		}
	}
	for i := range len(domain) {
		if c := domain[i]; !alnum(c) && !strings.ContainsRune(".:-[]_", rune(c)) && (c < 'A' || c > 'Z') {
			return bad("malformed registry")
		}
	}
	if domain == "" {
		return bad("malformed registry")
	}
	r.name = domain + "/" + path
	return r, nil
}

// String returns the full name, as containerd writes it.
func (r ref) String() string { return r.name + ":" + r.tag }

// familiar returns the short name, as docker save writes it.
func (r ref) familiar() string {
	name, hub := strings.CutPrefix(r.name, defaultDomain)
	if short, ok := strings.CutPrefix(name, defaultRepo); hub && ok && !strings.Contains(short, "/") {
		name = short
	}
	return name + ":" + r.tag
}

func alnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// validPart checks one part of a repository's path: lower-case letters and
// digits, with separators between them.
func validPart(s string) bool {
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i]) && !strings.ContainsRune("._-", rune(s[i])) {
			return false
		}
	}
	return true
}

func validTag(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !alnum(c) && (c < 'A' || c > 'Z') && c != '_' && (i == 0 || c != '.' && c != '-') {
			return false
		}
	}
	return true
}
