package generator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/delta"
)

// Version is a version of mender-app, and the features of artifacts and deltas that
// devices with it read.
type Version struct {
	Version  string
	Features []string
}

// Versions has each version that reads more than the previous one, the oldest first.
// A new feature gets a new line; a line that was released is never changed.
var Versions = []Version{
	{"1", []string{
		artifact.FeatureDelta, artifact.FeatureVariants, artifact.FeaturePolicy, artifact.FeatureSecrets, artifact.FeatureFiles, artifact.FeatureContent, artifact.FeatureReach, artifact.FeatureExpiry,
		delta.FeatureELF, delta.FeatureLZ, delta.FeatureDeflate, delta.FeatureGo, delta.FeatureFar, delta.FeatureUnwind, delta.FeatureSums, delta.FeaturePacked, delta.FeatureApart, delta.FeatureShow, delta.FeatureParts,
	}},
}

// FeaturesOf returns the features that devices have. forVersion is a version of mender-app,
// or a list of features with spaces or commas between them. It returns nil for "": the
// present version is meant, which has all.
func FeaturesOf(forVersion string) ([]string, error) {
	if forVersion == "" {
		return nil, nil
	}
	if list, ok := featureList(forVersion); ok {
		return list, nil
	}
	var found []string
	for _, r := range Versions {
		n, err := version.Compare(r.Version, forVersion)
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			found = r.Features
		}
	}
	if found == nil {
		return nil, fmt.Errorf("what mender-app %s reads is not known: it is older than %s", forVersion, Versions[0].Version)
	}
	return found, nil
}

// featureList reads a list of features. Those that this version does not know are of a
// newer one, and not needed; but one of them must be known.
func featureList(s string) (list []string, ok bool) {
	all := append(slices.Clone(artifact.Features), delta.Features...)
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' }) {
		ok = ok || slices.Contains(all, f)
		list = append(list, f)
	}
	return list, ok
}

// ReadsDeltas reports whether devices with these features read deltas at all.
func ReadsDeltas(has []string) bool {
	return has == nil || slices.Contains(has, artifact.FeatureDelta) && slices.Contains(has, delta.FeatureELF) && slices.Contains(has, delta.FeatureLZ)
}
