package generator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
)

// autoDepends makes Mender refuse a delta on a device that runs another version
// of the application than the bases are from, if the bases say their version.
func (r *run) autoDepends(images []foundImage, version string) (map[string][]string, error) {
	if r.Artifact.NoAutoDepends || version != artifact.VersionCurrent {
		return nil, nil
	}
	key := r.versionKey()
	if _, given := r.Artifact.Depends[key]; given {
		return nil, nil
	}
	if r.Images.Fallback {
		return nil, nil // it serves every device
	}
	// A version will do if every image has a base from it.
	var versions, all []string
	unknown, first := false, true
	var without []string // bases that do not say their version
	for _, img := range images {
		if len(img.named) == 0 || img.whole {
			continue
		}
		var have []string
		for _, b := range img.named {
			if v := b.Provides[key]; v != "" {
				have = append(have, v)
			} else {
				without = append(without, fmt.Sprintf("%s (%s)", b.URL, b.From))
			}
		}
		all = append(all, have...)
		if len(have) < len(img.named) {
			unknown = true
			continue
		}
		if first {
			versions, first = have, false
			continue
		}
		versions = slices.DeleteFunc(versions, func(v string) bool { return !slices.Contains(have, v) })
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	switch {
	case first && unknown:
		r.warn("the version that the bases belong to is not known: with --depends %s:VERSION Mender keeps the delta from devices that have another one", key)
	case len(versions) == 0 && len(all) > 0:
		slices.Sort(all)
		return nil, &UsageError{Text: "the bases come from several versions of the application: " + strings.Join(slices.Compact(all), ", "),
			Hint: "a device has one of them: give every image a base of each, or say which will do with --depends " + key + ":VERSION or --no-depends"}
	case len(versions) > 0:
		if unknown {
			r.warn("the artifact depends on %s = %s, the version of some of its bases; of others the version is not known: %s. With --depends %s:VERSION say which will do", key, strings.Join(versions, " or "), strings.Join(without, ", "), key)
		}
		return map[string][]string{key: versions}, nil
	}
	return nil, nil
}

// versionKey is the key of the provides that the application's version is in.
func (r *run) versionKey() string {
	fs := r.Artifact.Software.Filesystem
	if fs == "" {
		fs = "rootfs-image"
	}
	return fs + "." + r.Artifact.Software.Name + ".version"
}
