package image

import "strings"

// OwnDomain is the domain of the references that mender-app gives to images on a
// device. They keep an image and say which application needs it. The domain is not
// a host: nothing is pulled from it, and no artifact may bring an image with such a
// name.
const OwnDomain = "mender-app.local"

// InOwnDomain reports whether the name of an image is in OwnDomain, in any
// spelling of the name.
func InOwnDomain(url string) bool {
	for _, prefix := range []string{"index.docker.io/", "docker.io/"} {
		url = strings.TrimPrefix(url, prefix)
	}
	domain, _, path := strings.Cut(url, "/")
	domain, _, _ = strings.Cut(domain, ":")
	return path && strings.EqualFold(domain, OwnDomain)
}
