package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/bases"
)

// basePlaceholder stands for the version of the older release in names of files.
const basePlaceholder = "{base}"

// wholeBase replaces basePlaceholder for the artifact with full images.
const wholeBase = "whole"

// splitByBase makes a target for each older release, and one with full images if
// requested. A Mender server that honours depends chooses between them, so each
// artifact of a release must have different depends.
func (f *genFlags) splitByBase(ctx context.Context) ([]*target, error) {
	o := &f.o
	switch {
	case !o.Images.Releases.Any():
		return nil, &usageError{text: "--split makes an artifact for each older release, but none is named", hint: "name them with --base or --bases-from"}
	case o.Artifact.NoAutoDepends:
		return nil, &usageError{text: "--split and --no-depends exclude each other", hint: "Mender tells the artifacts of a release apart by their depends"}
	case !strings.Contains(o.Build.Output, basePlaceholder):
		ext := filepath.Ext(o.Build.Output)
		return nil, &usageError{
			text: fmt.Sprintf("--split makes several artifacts, but --output-path %s names one file", o.Build.Output),
			hint: fmt.Sprintf("write %s into the name, as in %s", basePlaceholder, strings.TrimSuffix(o.Build.Output, ext)+"-from-"+basePlaceholder+ext),
		}
	}
	for option, path := range map[string]string{"--sbom": o.Build.SBOM, "--provenance": o.Build.Provenance} {
		if path != "" && !strings.Contains(path, basePlaceholder) {
			return nil, &usageError{text: fmt.Sprintf("--split makes several artifacts, but %s %s names one file", option, path), hint: "write " + basePlaceholder + " into the name"}
		}
	}
	releases, err := generator.Releases(ctx, *o)
	if err != nil {
		return nil, err
	}
	var list []*target
	for i, r := range releases {
		if r.Version == "" {
			return nil, &usageError{text: r.Path + " does not state its version, so no artifact can depend on it", hint: "leave it out of the bases"}
		}
		if n := slices.IndexFunc(list, func(t *target) bool { return t.base == r.Version }); n >= 0 {
			return nil, &usageError{text: fmt.Sprintf("%s and %s are both version %s: their artifacts would depend on the same", releases[n].Path, r.Path, r.Version), hint: "name one of them"}
		}
		list = append(list, f.over(r.Version, releases, i))
	}
	if o.Images.Fallback || len(releases) == 0 {
		list = append(list, f.over(wholeBase, releases, -1))
	}
	return list, nil
}

// over returns the target whose deltas have one of the releases as their base; -1 is
// none. That release's content may be in the others.
func (f *genFlags) over(base string, releases []bases.Release, i int) *target {
	o := f.o
	name := strings.ReplaceAll(base, "/", "-")
	for _, path := range []*string{&o.Build.Output, &o.Build.SBOM, &o.Build.Provenance} {
		*path = strings.ReplaceAll(*path, basePlaceholder, name)
	}
	o.Build.Split, o.Build.Taken = true, append([]string{}, o.Images.Releases.Directories()...)
	o.Images.Releases, o.Images.Fallback = bases.Options{}, false
	if i >= 0 {
		o.Images.Releases.Paths = []string{releases[i].Path}
		o.Images.Content = slices.Clone(o.Images.Content)
		for n, r := range releases {
			if n != i {
				o.Images.Content = append(o.Images.Content, r.Path)
			}
		}
	}
	return &target{options: o, base: base}
}

// checkSplit refuses artifacts of --split with the same depends: a server would keep
// only one of them.
func checkSplit(targets []*target) error {
	for i, t := range targets {
		for _, other := range targets[:i] {
			if t.base == "" || t.made == nil || t.options.Application.Platform != other.options.Application.Platform {
				continue
			}
			if maps.EqualFunc(t.made.Depends, other.made.Depends, slices.Equal) {
				return &usageError{
					text: fmt.Sprintf("the artifacts for %s and %s depend on the same, and a server would keep one of them", other.base, t.base),
					hint: "leave out --depends, or the release that has nothing to build on",
				}
			}
		}
	}
	return nil
}
