package image

import "strings"

// FamiliarRef returns a reference in the short form in which engines list it:
// without the default registry and namespace, with a tag. A digest stays.
func FamiliarRef(ref string) string {
	name, digest, hasDigest := strings.Cut(ref, "@")
	for _, prefix := range []string{"docker.io/", "index.docker.io/"} {
		name = strings.TrimPrefix(name, prefix)
	}
	if short, ok := strings.CutPrefix(name, "library/"); ok && !strings.Contains(short, "/") {
		name = short
	}
	if hasDigest {
		return name + "@" + digest
	}
	if strings.LastIndexByte(name, ':') <= strings.LastIndexByte(name, '/') {
		name += ":latest"
	}
	return name
}

// SameRef reports whether two references mean the same, in their short or their
// full form.
func SameRef(a, b string) bool { return FamiliarRef(a) == FamiliarRef(b) }
