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
	own := r.Artifact.Software
	key, err := baseKey(own, images)
	if err != nil {
		return nil, err
	}
	for _, k := range []string{key, own.VersionKey()} {
		if _, given := r.Artifact.Depends[k]; given {
			return nil, nil
		}
	}
	if r.Images.Fallback {
		return nil, nil // it fits every device
	}
	// A version is accepted if every image has a base from it.
	var versions, all []string
	unknown, first := false, true
	var without []string // bases that do not say their version
	for _, img := range images {
		if len(img.named) == 0 || img.whole {
			continue
		}
		var have []string
		for _, b := range img.named {
			if v := own.In(b.Provides); v != "" {
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

// baseKey is the key of Mender's provides that the versions of the bases are
// under. It is not the one that this artifact provides where the older artifacts
// were made with another --software-filesystem, or by another tool. Mender wants
// every key of depends, so there can only be one.
func baseKey(own Software, images []foundImage) (string, error) {
	var keys []string
	for _, img := range images {
		if img.whole {
			continue
		}
		for _, b := range img.named {
			if k := own.ProvidedKey(b.Provides); k != "" {
				keys = append(keys, k)
			}
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	switch len(keys) {
	case 0:
		return own.VersionKey(), nil
	case 1:
		return keys[0], nil
	}
	return "", &UsageError{Text: "the bases have their versions under several keys: " + strings.Join(keys, ", "),
		Hint: "Mender cannot ask for one key or another: make one artifact for each, or leave the question to the device with --no-depends"}
}
