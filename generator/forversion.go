package generator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta"
)

// readBy returns the features that the devices have; nil for all.
func (a *Artifact) readBy() ([]string, error) {
	list, err := FeaturesOf(a.ForVersion)
	if err != nil {
		return nil, &UsageError{Text: "--for-version: " + err.Error(), Hint: "give a version of mender-app, as 1.0.0, or what mender_app_features of the inventory says"}
	}
	if newest := Versions[len(Versions)-1].Version; unknownMajor(a.ForVersion, newest) {
		return nil, &UsageError{Text: fmt.Sprintf("--for-version: there is no mender-app %s that this app-gen knows: it knows versions %s.x", a.ForVersion, newest), Hint: "leave it out for devices with the present version"}
	}
	return list, nil
}

// unknownMajor reports whether the first number of a version is greater than that of the
// newest.
func unknownMajor(v, newest string) bool {
	major := func(s string) int {
		first, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), ".")
		n, err := strconv.Atoi(first)
		if err != nil {
			return 0 // a list of features, or none
		}
		return n
	}
	return major(v) > major(newest)
}

// lacks reports whether the devices lack a feature.
func (r *run) lacks(feature string) bool { return r.reads != nil && !slices.Contains(r.reads, feature) }

// checkFeatures refuses what needs a feature that the devices lack.
func (r *run) checkFeatures(p *plan) error {
	if r.reads == nil {
		return nil
	}
	several := slices.ContainsFunc(p.images, func(i plannedImage) bool { return i.format == artifact.FormatVariants }) ||
		slices.ContainsFunc(p.files, func(f plannedFile) bool { return f.Format == artifact.FormatVariants })
	deltas := several || slices.ContainsFunc(p.images, func(i plannedImage) bool { return i.format == artifact.FormatDelta }) ||
		slices.ContainsFunc(p.files, func(f plannedFile) bool { return f.Format == artifact.FormatDelta })
	const over = "name no CURRENT, and no --base or --bases-from"
	for _, c := range []struct {
		asked               bool
		feature, what, hint string
	}{
		{deltas, artifact.FeatureDelta, "deltas", over},
		{deltas, delta.FeatureELF, "deltas", over},
		{deltas, delta.FeatureLZ, "deltas", over},
		{several, artifact.FeatureVariants, "images in several variants", "name one base for each image, without --full-fallback; --split makes an artifact for each"},
		{r.policy != nil, artifact.FeaturePolicy, "a policy", "leave app.toml out"},
		{!r.Artifact.Expiry.Expires.IsZero(), artifact.FeatureExpiry, "an expiry", "leave --expires out"},
		{len(r.Application.EncryptTo) > 0, artifact.FeatureSecrets, "encrypted secrets", "leave --encrypt-secrets-to out"},
		{len(p.files) > 0 && (deltas || r.policy != nil), artifact.FeatureFiles, "files beside deltas or a policy", "leave --component out"},
	} {
		if c.asked && r.lacks(c.feature) {
			return &UsageError{Text: fmt.Sprintf("--for-version %s: such devices lack %s, and cannot read %s", r.Artifact.ForVersion, c.feature, c.what), Hint: c.hint}
		}
	}
	return nil
}

// checkRequired makes sure that what was made needs nothing that the devices lack.
// Secrets that came encrypted are known only then.
func (r *run) checkRequired(requires []string) error {
	for _, f := range requires {
		if r.lacks(f) {
			return &UsageError{Text: fmt.Sprintf("--for-version %s: such devices lack %s, which the artifact needs", r.Artifact.ForVersion, f), Hint: "app-gen inspect shows what another artifact requires"}
		}
	}
	return nil
}
