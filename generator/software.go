package generator

import (
	"maps"
	"slices"
	"strings"
)

// Software is the version that the artifact provides to Mender, as
// FILESYSTEM.NAME.version.
type Software struct {
	Filesystem string // "" is DefaultFilesystem
	Name       string // "" is the application's name
	Version    string // "" is the artifact's name
	NoVersion  bool   // provide no version
	NoClears   bool   // add no clears_artifact_provides
}

// In is the version of this software in an artifact's provides; "" if it is
// not there.
func (s Software) In(provides map[string]string) string {
	return provides[s.ProvidedKey(provides)]
}

// ProvidedKey is the key in an artifact's provides that has the version of this
// software; "" if there is none.
func (s Software) ProvidedKey(provides map[string]string) string {
	if provides[s.VersionKey()] != "" {
		return s.VersionKey()
	}
	for _, k := range slices.Sorted(maps.Keys(provides)) {
		if strings.HasSuffix(k, "."+s.Name+".version") && provides[k] != "" {
			return k
		}
	}
	return ""
}

// DefaultFilesystem begins the keys of what an application provides to Mender,
// unless --software-filesystem says otherwise. An update of the operating system
// clears rootfs-image.*, as mender-artifact writes it; the applications on the
// data partition are still there then.
const DefaultFilesystem = "data-partition"

// formerFilesystem is what mender-artifact and the shell generator use. An
// application that came under it gets the new key with its next release.
const formerFilesystem = "rootfs-image"

func (s Software) filesystem() string {
	if s.Filesystem == "" {
		return DefaultFilesystem
	}
	return s.Filesystem
}

// VersionKey is the key of the provides that has the software's version: the
// artifact's name, as a rule.
func (s Software) VersionKey() string { return s.filesystem() + "." + s.Name + ".version" }

// ApplicationVersionKey is the key under which Mender knows the application's
// own version.
func (s Software) ApplicationVersionKey() string {
	return s.filesystem() + "." + s.Name + ".application_version"
}

// Clears are the patterns of the keys that the artifact replaces on the device:
// its own, and those of a release that came under another key.
func (s Software) Clears() []string {
	var patterns []string
	for _, fs := range []string{s.filesystem(), DefaultFilesystem, formerFilesystem} {
		if p := fs + "." + s.Name + ".*"; !slices.Contains(patterns, p) {
			patterns = append(patterns, p)
		}
	}
	return patterns
}
