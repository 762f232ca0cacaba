package rules

import (
	"os"
	"path/filepath"
	"strings"
)

// isRemote reports whether Compose would take a path for a git repository or an OCI
// artifact.
func isRemote(name string) bool {
	for _, p := range []string{"git@", "github.com/", "oci:", "docker.io/"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return strings.Contains(name, "://")
}

// IsRootOfDevice reports whether a path is /, or a link to it.
func IsRootOfDevice(path string) bool {
	if path == "" {
		return false
	}
	root, err := os.Stat("/")
	if err != nil {
		return filepath.Clean(path) == "/"
	}
	fi, err := os.Stat(path)
	return filepath.Clean(path) == "/" || err == nil && os.SameFile(root, fi)
}
