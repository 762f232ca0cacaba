package bases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/generator/source"
)

// Known is the description of a release in the header of an artifact.
type Known struct {
	Path   string
	Header *mender.Header
	Meta   *artifact.Metadata
}

// ReadKnown reads the header of an artifact and no payload. It returns nil and says why
// if the file is not an artifact of an application.
func ReadKnown(ctx context.Context, path string) (k *Known, why string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	a, err := mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{})
	if err != nil {
		return nil, "", err
	}
	h := a.Header()
	if h.PayloadType != mender.PayloadTypeApp {
		return nil, fmt.Sprintf("its payload type is %q, not %q", h.PayloadType, mender.PayloadTypeApp), nil
	}
	m, _, err := artifact.ParseMetadata(h.MetaData)
	if err != nil {
		return nil, "", err
	}
	return &Known{Path: path, Header: h, Meta: m}, "", nil
}

// KnownIn reads the headers of the files FILE.mender in a directory, in the order of
// their names. It passes over files that are not artifacts of an application, and tells bad of
// those that cannot be read. A directory that does not exist has none.
func KnownIn(ctx context.Context, dir string, bad func(path string, err error)) (list []*Known, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, &Error{Text: "releases in " + dir, Err: err}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(path, ".mender") {
			continue
		}
		k, _, err := ReadKnown(ctx, path)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			bad(path, err)
		case k != nil:
			list = append(list, k)
		}
	}
	return list, nil
}

// Replaced finds the image of the release that a new image replaces, by the rule of
// [Release.Replaced]; nil if there is none.
func (k *Known) Replaced(url string, digest image.Digest) *artifact.Component {
	images := k.Meta.ImageComponents()
	for _, fits := range []func(artifact.Component) bool{
		func(c artifact.Component) bool { return c.Digest == digest },
		func(c artifact.Component) bool { return source.Normal(c.URL) == source.Normal(url) },
		func(c artifact.Component) bool { return source.Repository(c.URL) == source.Repository(url) },
	} {
		if i := slices.IndexFunc(images, fits); i >= 0 {
			return &images[i]
		}
	}
	return nil
}

// over has the names of the artifacts that the release builds on, as it says itself, and
// otherwise the versions that it depends on, which are names as a rule.
func (k *Known) over(version func(map[string]string) string) map[string]bool {
	names := map[string]bool{}
	if k.Meta.Made != nil {
		for _, o := range k.Meta.Made.Over {
			names[o.Name] = true
		}
		return names
	}
	for _, v := range k.Needs(version) {
		names[v] = true
	}
	return names
}

// Needs are the versions of the application of which a device must have one; none: any
// device will do. version finds a version in what an artifact provides.
func (k *Known) Needs(version func(map[string]string) string) (list []string) {
	for key, values := range k.Header.Depends {
		for _, v := range values {
			if version(map[string]string{key: v}) == v {
				list = append(list, v)
			}
		}
	}
	return list
}

// BuildsOn reports whether one release builds on another, or on one that does. all are
// the releases that may lie between them.
func BuildsOn(k *Known, name string, all []*Known, version func(map[string]string) string) bool {
	seen := map[string]bool{}
	var reaches func(*Known) bool
	reaches = func(k *Known) bool {
		over := k.over(version)
		if over[name] {
			return true
		}
		for _, next := range all {
			if n := next.Header.Name; over[n] && !seen[next.Path] {
				seen[next.Path] = true
				if reaches(next) {
					return true
				}
			}
		}
		return false
	}
	return reaches(k)
}

// older leaves out the releases that cannot be bases of the wanted one: those that are
// newer, and those that build on it.
func (w *Wanted) older(list []Release) (rest []Release) {
	var all []*Known
	for _, r := range list {
		all = append(all, r.known)
	}
	for _, r := range list {
		if !newer(r.Version, w.Release) && !BuildsOn(r.known, w.Name, all, w.Version) {
			rest = append(rest, r)
		}
	}
	return rest
}

// newer reports whether version a comes after b. Versions have an order if they are
// versions by the rules of package version, or if they differ in numbers alone, as
// shop-9 and shop-10 do. Others, such as shop-3f2a and shop-b771, have none.
func newer(a, b string) bool {
	ordered := version.Check(a) == nil && version.Check(b) == nil
	if !ordered && words(a) != words(b) {
		return false
	}
	return compareVersions(a, b, ordered) > 0
}

// words is a text with 0 in place of each of its numbers.
func words(s string) string {
	var b strings.Builder
	for s != "" {
		if n := digits(s); n > 0 {
			b.WriteByte('0')
			s = s[n:]
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}
