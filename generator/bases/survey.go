package bases

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/version"
)

// Surveyed is a release among others of its application.
type Surveyed struct {
	Path        string `json:"path"`
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"`
	Application string `json:"application"`
	Platform    string `json:"platform"`
	Bytes       int64  `json:"bytes"`
	// First: a device without the application can install it.
	First bool `json:"first"`
	// Over are the names of the surveyed releases over which devices can install it.
	Over []string `json:"over,omitempty"`
	// Damage says why no device gets to it, or why it cannot be read; "" if all is well.
	Damage string `json:"damage,omitempty"`

	known *Known
}

// Survey reads the releases in directories, the newest first, and finds out what installs
// over what. With whole it reads them to their ends, which verifies their checksums.
func Survey(ctx context.Context, dirs []string, whole bool) ([]Surveyed, error) {
	var list []Surveyed
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			return nil, &Error{Text: dir + " is not a directory", Hint: "name the directory with the releases"}
		}
		known, err := KnownIn(ctx, dir, func(path string, err error) {
			list = append(list, Surveyed{Path: path, Damage: "it cannot be read: " + err.Error()})
		})
		if err != nil {
			return nil, err
		}
		for _, k := range known {
			if slices.ContainsFunc(list, func(have Surveyed) bool { return same(have.Path, k.Path) }) {
				continue
			}
			s := Surveyed{Path: k.Path, Name: k.Header.Name, Application: k.Meta.ApplicationName, Platform: k.Meta.Platform, known: k}
			s.Version = k.version(k.Header.Provides)
			if info, err := os.Stat(k.Path); err == nil {
				s.Bytes = info.Size()
			}
			if whole {
				if err := verify(ctx, k.Path); err != nil {
					if ctx.Err() != nil {
						return nil, ctx.Err()
					}
					s.Damage = "it cannot be read: " + err.Error()
				}
			}
			list = append(list, s)
		}
	}
	ordered := !slices.ContainsFunc(list, func(s Surveyed) bool { return s.known != nil && version.Check(s.Version) != nil })
	slices.SortStableFunc(list, func(a, b Surveyed) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.Platform, b.Platform),
			compareVersions(b.Version, a.Version, ordered), compareWords(b.Path, a.Path))
	})
	connect(list)
	return list, nil
}

// version is that of the application in what an artifact provides or depends on: under the
// key of the application's name, or else the first that looks like one.
func (k *Known) version(provides map[string]string) string {
	for _, suffix := range []string{"." + k.Meta.ApplicationName + ".version", ".version"} {
		for _, key := range slices.Sorted(maps.Keys(provides)) {
			if strings.HasSuffix(key, suffix) && provides[key] != "" {
				return provides[key]
			}
		}
	}
	return ""
}

// connect finds what each release installs over, and what no device gets to.
func connect(list []Surveyed) {
	reached := map[int]bool{}
	for i := range list {
		s := &list[i]
		if s.known == nil {
			continue
		}
		s.First = len(s.known.Needs(s.known.version)) == 0 && s.known.Fits(nil)
		reached[i] = s.First
		for _, base := range list {
			if base.known != nil && base.Path != s.Path && base.Application == s.Application && base.Platform == s.Platform && s.installsOver(&base) {
				s.Over = append(s.Over, base.Name)
			}
		}
		slices.SortFunc(s.Over, func(a, b string) int { return compareWords(b, a) })
		s.Over = slices.Compact(s.Over)
	}
	for more := true; more; {
		more = false
		for i := range list {
			for j := range list {
				if !reached[i] && reached[j] && list[i].Application == list[j].Application && list[i].Platform == list[j].Platform && slices.Contains(list[i].Over, list[j].Name) {
					reached[i], more = true, true
				}
			}
		}
	}
	for i := range list {
		if s := &list[i]; s.Damage == "" && !reached[i] {
			s.Damage = s.unreached(list)
		}
	}
}

// unreached says why no device gets to the release.
func (s *Surveyed) unreached(list []Surveyed) string {
	if len(s.Over) > 0 {
		return "a new device never gets to it: it installs only over " + strings.Join(s.Over, " and ") + ", to which none gets either"
	}
	var named []string
	for name := range s.known.over(s.known.version) {
		named = append(named, name)
	}
	slices.Sort(named)
	var gone, other []string
	for _, name := range named {
		if slices.ContainsFunc(list, func(o Surveyed) bool { return o.Name == name && o.Platform == s.Platform }) {
			other = append(other, name)
		} else {
			gone = append(gone, name)
		}
	}
	switch {
	case len(other) > 0:
		return fmt.Sprintf("it builds on %s as it was when this release was made: %s was replaced", other[0], other[0])
	case len(gone) > 0:
		return "it builds on " + strings.Join(gone, " and ") + ", which is not here"
	}
	return "no release here has the images that it builds on"
}

// installsOver reports whether a device with the base can install the release.
func (s *Surveyed) installsOver(base *Surveyed) bool {
	if needs := s.known.Needs(s.known.version); len(needs) > 0 && !slices.Contains(needs, base.Version) {
		return false
	}
	return s.known.Fits(base.known)
}

// Fits reports whether a device that has the images and files of the release base can
// install the release, as far as its deltas go; nil is a device that has none.
func (k *Known) Fits(base *Known) bool {
	has := map[image.Digest]bool{}
	if base != nil {
		for _, c := range base.Meta.Components {
			has[c.Digest] = true
		}
	}
	for _, c := range k.Meta.Components {
		ways := [][]artifact.Base{c.Bases}
		if len(c.Variants) > 0 {
			ways = nil
			for _, v := range c.Variants {
				ways = append(ways, v.Bases)
			}
		}
		if !slices.ContainsFunc(ways, func(bases []artifact.Base) bool {
			return !slices.ContainsFunc(bases, func(b artifact.Base) bool { return !has[b.Digest] })
		}) {
			return false
		}
		has[c.Digest] = true // later images may build on it
	}
	return true
}

// verify reads an artifact to its end.
func verify(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{})
	if err != nil {
		return err
	}
	for {
		if _, err := r.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
