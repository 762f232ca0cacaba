// Package bases has what deltas build on: it finds older releases of an application,
// rebuilds their images as a device does, also those that are deltas, and finds the
// content that the deltas over several bases share.
//
// It encodes nothing, and knows nothing of what is made over the bases.
package bases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/generator/source"
)

// Options say which releases to look for.
type Options struct {
	// Paths are artifacts, and directories of which every release counts.
	Paths []string
	// Dirs are directories of which the Last newest releases count; 0: all.
	Dirs []string
	Last int
}

// Any reports whether releases are asked for.
func (o *Options) Any() bool { return len(o.Paths)+len(o.Dirs) > 0 }

// Directories are all directories in which releases are looked for.
func (o *Options) Directories() []string {
	list := slices.Clone(o.Dirs)
	for _, path := range o.Paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			list = append(list, path)
		}
	}
	return list
}

// Wanted is the release that is being made, and what the older ones must match.
type Wanted struct {
	Application string
	Platform    image.Platform
	Name        string // of the artifact
	Release     string // its version, as Version finds it; a newer release in a directory is not a base
	Output      string // the artifact that is written, which is not a base of itself
	// Version finds the release's version in what its artifact provides to Mender;
	// it orders the releases. "" if the artifact does not say.
	Version func(provides map[string]string) string
}

// Release is an older release of the application.
type Release struct {
	Path    string
	Version string // what it provides; "" if it does not say
	known   *Known
	names   map[image.Digest][]string // of its images
}

// Error says which file cannot be a base, and what to do about it.
type Error struct {
	Text, Hint string
	Err        error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

func (e *Error) Unwrap() error { return e.Err }

// Advice is the hint.
func (e *Error) Advice() string { return e.Hint }

// Find reads the headers, never the payloads, of all releases that are asked for: first the named files,
// then those of the directories, the newest first. A named file must be a release of
// the application for the platform. In a directory, other files are ignored, and so are
// newer releases. A release that depends on the wanted one is never a base. Before the
// first release, Options.Dirs have none; Options.Paths must.
func Find(ctx context.Context, o Options, w Wanted) ([]Release, error) {
	var list []Release
	add := func(more ...Release) {
		for _, r := range more {
			if !slices.ContainsFunc(list, func(have Release) bool { return same(have.Path, r.Path) }) {
				list = append(list, r)
			}
		}
	}
	for _, path := range o.Paths {
		path = strings.TrimPrefix(path, string(source.Artifact)+":")
		info, err := os.Stat(path)
		if err != nil {
			return nil, &Error{Text: "--base " + path, Err: errors.Unwrap(err), Hint: "it is an older artifact of the application, or a directory of them"}
		}
		if info.IsDir() {
			in, err := directory(ctx, path, w)
			if err != nil {
				return nil, err
			}
			add(in...)
			continue
		}
		r, why, err := read(ctx, path, w)
		if err == nil && why != "" {
			err = errors.New(why)
		}
		if err != nil {
			return nil, &Error{Text: "--base " + path, Err: err}
		}
		if r.known.over(w.Version)[w.Name] {
			return nil, &Error{Text: fmt.Sprintf("--base %s: %s builds on %s, which cannot build on it", path, r.known.Header.Name, w.Name), Hint: "name an older release, or give this one a new name"}
		}
		add(*r)
	}
	for _, dir := range o.Dirs {
		in, err := directory(ctx, dir, w)
		if errors.Is(err, errFirst) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if o.Last > 0 && len(in) > o.Last {
			in = in[:o.Last]
		}
		add(in...)
	}
	return list, nil
}

// errFirst is wrapped by the error for a directory as it is before the first release for
// the platform: without any artifact, or with that of the release itself, or with newer
// ones or those of other platforms alone.
var errFirst = errors.New("no artifact in it is for that platform")

// otherPlatform begins what read says of an artifact for another platform.
const otherPlatform = "it is for "

// directory finds the releases in a directory, the newest first.
func directory(ctx context.Context, dir string, w Wanted) ([]Release, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Text: "releases in " + dir + ": no such file or directory", Hint: "releases are files FILE.mender", Err: errFirst}
	}
	if err != nil {
		return nil, &Error{Text: "releases in " + dir, Err: errors.Unwrap(err)}
	}
	var list []Release
	left, first := "", true
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if !strings.HasSuffix(path, ".mender") || err != nil || !info.Mode().IsRegular() || same(path, w.Output) {
			continue
		}
		r, why, err := read(ctx, path, w)
		switch {
		case err != nil:
			return nil, &Error{Text: path, Err: err, Hint: "take it out of the directory, or name the releases with --base"}
		case why == "" && r.known.Header.Name == w.Name: // the one that is made now, of an earlier run
		case why != "":
			left = "; " + e.Name() + ": " + why
			first = first && strings.HasPrefix(why, otherPlatform)
		default:
			list = append(list, *r)
		}
	}
	list = w.older(list)
	if len(list) == 0 {
		e := &Error{Text: fmt.Sprintf("%s has no release of %s for %s%s", dir, w.Application, w.Platform, left), Hint: "releases are files FILE.mender"}
		if first {
			e.Err = errFirst
		}
		return nil, e
	}
	newestFirst(list)
	return list, nil
}

// read reads the header of an artifact. why says why it is not a base.
func read(ctx context.Context, path string, w Wanted) (r *Release, why string, err error) {
	k, why, err := ReadKnown(ctx, path)
	if k == nil {
		return nil, why, err
	}
	if k.Meta.ApplicationName != w.Application {
		return nil, fmt.Sprintf("it is of the application %s, not %s", k.Meta.ApplicationName, w.Application), nil
	}
	if p, err := image.ParsePlatform(k.Meta.Platform); err == nil && w.Platform.Match(p) == image.NoFit {
		return nil, fmt.Sprintf(otherPlatform+"%s, not %s", k.Meta.Platform, w.Platform), nil
	}
	r = &Release{Path: path, Version: w.Version(k.Header.Provides), known: k, names: map[image.Digest][]string{}}
	for _, c := range k.Meta.ImageComponents() {
		r.names[c.Digest] = append(r.names[c.Digest], c.URL)
	}
	return r, "", nil
}

// newestFirst sorts releases by version. If a version has no defined order, such as
// shop-10, the two are compared by their words and numbers.
func newestFirst(list []Release) {
	ordered := !slices.ContainsFunc(list, func(r Release) bool { return version.Check(r.Version) != nil })
	slices.SortFunc(list, func(a, b Release) int {
		return cmp.Or(compareVersions(b.Version, a.Version, ordered), compareWords(b.Path, a.Path))
	})
}

// compareVersions compares two versions, if they are ordered by the rules of versions and
// otherwise by their words and numbers.
func compareVersions(a, b string, ordered bool) int {
	if ordered {
		if n, err := version.Compare(a, b); err == nil && n != 0 {
			return n
		}
	}
	return compareWords(a, b)
}

// compareWords compares texts, with the numbers in them by value.
func compareWords(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na == 0 || nb == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if n := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); n != 0 {
			return n
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits is how many digits a text begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// Replaced finds the image of the release that a new image replaces: one of the
// same content, else of the same name, else of the same repository. held are the
// images in the artifact. It returns nil if there is none.
func (r *Release) Replaced(held []source.Held, url string, digest image.Digest) *source.Held {
	for _, fits := range []func(source.Held) bool{
		func(h source.Held) bool { return h.Digest == digest },
		func(h source.Held) bool { return r.named(h, source.Normal, url) },
		func(h source.Held) bool { return r.named(h, source.Repository, url) },
	} {
		if i := slices.IndexFunc(held, fits); i >= 0 {
			return &held[i]
		}
	}
	return nil
}

// named reports whether one of the image's names has the same key as url.
func (r *Release) named(h source.Held, key func(string) string, url string) bool {
	names := append([]string{h.URL}, r.names[h.Digest]...)
	return slices.ContainsFunc(names, func(n string) bool { return key(n) == key(url) })
}

// same reports whether two paths name the same file.
func same(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}
