package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// Release is one version of the Fixture's application.
type Release struct {
	Components []submodules.Component
	// Content gives the path of each component's content, by URL.
	Content map[string]string
	// Manifests are the files of the release, by their path.
	Manifests map[string]string
}

// Fixture holds what the suite cannot know about an orchestrator.
type Fixture struct {
	// App is the application's name; "" is a new one.
	App string
	// Good and Better are releases that become healthy. Their components have the
	// same URLs and different content. Bad is a release that never becomes healthy;
	// it is absent if it has neither components nor manifests.
	Good, Better, Bad Release
	// Damage, if set, damages a component in the store so that it is still listed
	// but not complete. The checks of the feature repair use it.
	Damage func(submodules.Component)
}

// ReadFixture reads a fixture from a directory:
//
//	good/manifests/…        the files of a release that becomes healthy
//	good/components/PATH    its components; PATH is the url of each
//	better/…                the next release, with the same urls
//	bad/…                   one that never becomes healthy; may be left out
//
// A component is a file, its digest the SHA-256 of it. Images, and components
// whose url is not a path, stand in good/components.json instead: a list as LIST
// prints it, each with a member file, the path of its content below good.
func ReadFixture(dir string) (*Fixture, error) {
	var f Fixture
	for i, r := range []*Release{&f.Good, &f.Better, &f.Bad} {
		name := []string{"good", "better", "bad"}[i]
		err := r.read(filepath.Join(dir, name))
		if name == "bad" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("fixture: %w", err)
		}
	}
	return &f, f.check()
}

// check asserts that the releases differ and can replace one another.
func (f *Fixture) check() error {
	if len(f.Good.Components) == 0 {
		return errors.New("fixture: the good release has no component")
	}
	for _, c := range f.Good.Components {
		if f.Better.Content[c.URL] == "" {
			return fmt.Errorf("fixture: the better release has no component %s", c.URL)
		}
	}
	// Checks that need one component take the first. It must be one that changes.
	for _, c := range f.Good.Components {
		next := f.Better.index(c.URL)
		if f.Better.Components[next].Digest != c.Digest {
			f.Good.first(f.Good.index(c.URL))
			f.Better.first(next)
			return nil
		}
	}
	return errors.New("fixture: all components are the same in the good and the better release")
}

func (r *Release) index(url string) int {
	return slices.IndexFunc(r.Components, func(c submodules.Component) bool { return c.URL == url })
}

// first moves the component with this index to the front.
func (r *Release) first(i int) {
	r.Components[0], r.Components[i] = r.Components[i], r.Components[0]
}

// maxManifests bounds the manifests of a fixture's release, in bytes.
const maxManifests = 16 << 20

func (r *Release) read(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	r.Content, r.Manifests = map[string]string{}, map[string]string{}
	manifests := filepath.Join(dir, "manifests")
	left := int64(maxManifests)
	err = files(manifests, func(name string, size int64) error {
		if left -= size; left < 0 {
			return fmt.Errorf("%s has more than %d bytes", manifests, maxManifests)
		}
		text, err := os.ReadFile(filepath.Join(manifests, name))
		r.Manifests[name] = string(text)
		return err
	})
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(dir, "components.json")); err == nil {
		return r.readList(dir, text)
	}
	components := filepath.Join(dir, "components")
	return files(components, func(name string, _ int64) error {
		path := filepath.Join(components, name)
		d, err := digest.OfFile(path)
		r.Components = append(r.Components, submodules.Component{Type: "binary", URL: name, Digest: d})
		r.Content[name] = path
		return err
	})
}

// readList takes the release's components from components.json.
func (r *Release) readList(dir string, text []byte) error {
	var list []struct {
		submodules.Component
		File string `json:"file"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, "components.json"), err)
	}
	for _, c := range list {
		path := filepath.Join(dir, c.File)
		if !filepath.IsLocal(c.File) {
			return fmt.Errorf("%s: the file %q of %s is not below it", dir, c.File, c.URL)
		}
		if c.Digest == "" && c.Type != "image" {
			var err error
			if c.Digest, err = digest.OfFile(path); err != nil {
				return err
			}
		}
		if c.URL == "" || c.Type == "" || c.Digest == "" {
			return fmt.Errorf("%s: a component needs type, url and, for an image, digest", filepath.Join(dir, "components.json"))
		}
		r.Components = append(r.Components, c.Component)
		r.Content[c.URL] = path
	}
	return nil
}

// files calls each with the path, below dir, and the size of every file in it.
func files(dir string, each func(name string, size int64) error) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", path)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return each(name, fi.Size())
	})
}
