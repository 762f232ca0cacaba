package image

import "strings"

// OwnDomain begins the references that mender-app gives images on a device, to
// keep them and to say which application needs them. It is no host: nothing is
// ever pulled from it, and no image may come under a name in it.
const OwnDomain = "mender-app.local"

// InOwnDomain reports whether the name of an image is in OwnDomain, in whatever
// way it is written.
func InOwnDomain(url string) bool {
	for _, prefix := range []string{"index.docker.io/", "docker.io/"} {
		url = strings.TrimPrefix(url, prefix)
	}
	domain, _, path := strings.Cut(url, "/")
	domain, _, _ = strings.Cut(domain, ":")
	return path && strings.EqualFold(domain, OwnDomain)
}
