// Package containermodules reads the store of mender-container-modules, Northern.tech's
// update module "docker-compose", so that its projects can be adopted.
//
// That module has one Compose project on a device:
//
//	<store>/current/manifests/     the project's files
//	<store>/current/project_name   the project's name, given to Compose with -p
//	<store>/current/image_ids      short IDs of its images; not read here
//
// An update starts the new project in <store>/new and keeps the old one in
// <store>/previous; the commit renames new to current, and previous to cleanup. So
// containers run from paths that no longer exist. The package must not know
// artifacts, releases or Mender.
package containermodules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules/config"
)

const (
	// Orchestrator is the sub-module for the module's projects.
	Orchestrator = "docker-compose"
	// DefaultDir is the module's store unless its configuration names another.
	DefaultDir = "/data/mender-docker-compose"
	// ConfigName is the module's configuration file, in /etc/mender.
	ConfigName = "mender-docker-compose.conf"

	manifestsName = "manifests"
	projectFile   = "project_name"
	envFile       = ".env"
)

// The directories of the store, the most trusted first: the committed project, the
// one that an open update replaces, a first installation.
var places = []string{"current", "previous", "new"}

// leftovers is the directory that the module's Cleanup removes.
const leftovers = "cleanup"

// Store is the module's store. The zero value has no project.
type Store struct{ dir string }

// At returns the store in dir, which need not exist.
func At(dir string) Store { return Store{filepath.Clean(dir)} }

// Configured returns the store that the module's configuration in a directory such
// as /etc/mender names. With an error it returns the default.
func Configured(confDir string) (Store, error) {
	f, err := config.Read(filepath.Join(confDir, ConfigName))
	if err != nil {
		return At(DefaultDir), err
	}
	dir := f.String(DefaultDir, "PERSISTENT_STORE")
	if !filepath.IsAbs(dir) {
		return At(DefaultDir), fmt.Errorf("%s: PERSISTENT_STORE: %q is not an absolute path", filepath.Join(confDir, ConfigName), dir)
	}
	return At(dir), nil
}

// Dir is the store's directory, "" for the zero value.
func (s Store) Dir() string { return s.dir }

// Project is a project that the module installed.
type Project struct {
	Name      string // it can be an application's name
	Manifests string // the directory of its files
}

// Project returns the installed project.
func (s Store) Project() (Project, bool) {
	if s.dir == "" {
		return Project{}, false
	}
	for _, place := range places {
		p := Project{Name: s.name(place), Manifests: filepath.Join(s.dir, place, manifestsName)}
		if st, err := os.Lstat(p.Manifests); err == nil && st.IsDir() && names.Check(p.Name) == nil {
			return p, true
		}
	}
	return Project{}, false
}

// name is the name of the project in one of the store's directories, "" for none.
func (s Store) name(place string) string {
	text, err := readFile(filepath.Join(s.dir, place, projectFile), 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Ran reports whether the module started a project whose directory Compose calls
// dir. The directory may be gone: the module renames it. Links above the store
// may have been followed or not.
func (s Store) Ran(dir string) bool {
	place := filepath.Dir(dir)
	if s.dir == "" || filepath.Base(dir) != manifestsName || !slices.Contains(places, filepath.Base(place)) {
		return false
	}
	above := filepath.Dir(place)
	if above == s.dir {
		return true
	}
	a, err := os.Stat(above)
	if err != nil {
		return false
	}
	b, err := os.Stat(s.dir)
	return err == nil && os.SameFile(a, b)
}

// Drop removes a project's files from the store. The store's directory stays: it
// shows which containers the module started. Drop is idempotent.
func (s Store) Drop(project string) error {
	if s.dir == "" {
		return nil
	}
	for _, place := range append([]string{leftovers}, places...) {
		dir := filepath.Join(s.dir, place)
		if _, err := os.Lstat(dir); err != nil || s.name(place) != project {
			continue
		}
		// The name goes last, so that a call that was interrupted can be repeated.
		for _, at := range []string{filepath.Join(dir, manifestsName), dir} {
			if err := durable.RemoveAll(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// CopyTo makes dir a copy of the project's files, with hard links where that is
// possible: running containers may have the files mounted. dir must not exist. The
// module gave Compose the project's name with -p. If the files name the project too,
// the copy's .env gets the project's name, which takes precedence. The copy is
// durable only after durable.SyncTree.
func (p Project) CopyTo(dir string) error {
	if err := durable.LinkTree(p.Manifests, dir); err != nil {
		return err
	}
	if !p.namesItself() {
		return nil
	}
	at, perm := filepath.Join(dir, envFile), fs.FileMode(0o644)
	env, err := readFile(at, maxText)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		perm, env = st.Mode().Perm(), append(env, '\n')
	}
	return durable.WriteFile(at, append(env, "COMPOSE_PROJECT_NAME="+p.Name+"\n"...), perm)
}

// namesItself reports whether the project's files name the project.
func (p Project) namesItself() bool {
	for _, text := range p.texts() {
		if ownName().Match(text) {
			return true
		}
	}
	return false
}

// A project's name at the top level of a Compose file, in YAML or JSON, or in .env.
var ownName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(?:name|"name"|'name')[ \t]*:|^\{[ \t\r\n]*"name"[ \t\r\n]*:|^[ \t]*(?:export[ \t]+)?COMPOSE_PROJECT_NAME[ \t]*=`)
})

// Bounds on reading the project's files.
const (
	maxText   = 4 << 20
	maxFiles  = 100
	maxImages = 1000
)

var imageLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[ \t]+image:[ \t]*["']?([^\s"'#]+)`)
})

// Images returns the image names in the project's files, without names that contain
// variables.
func (p Project) Images() (urls []string) {
	for _, text := range p.texts() {
		for _, m := range imageLine().FindAllSubmatch(text, maxImages) {
			url := string(m[1])
			if !strings.Contains(url, "$") && !slices.Contains(urls, url) && len(urls) < maxImages {
				urls = append(urls, url)
			}
		}
	}
	return urls
}

// texts returns the project's files that can be read, without those in directories.
func (p Project) texts() (list [][]byte) {
	entries, err := os.ReadDir(p.Manifests)
	if err != nil {
		return nil
	}
	for _, e := range entries[:min(len(entries), maxFiles)] {
		if text, err := readFile(filepath.Join(p.Manifests, e.Name()), maxText); err == nil {
			list = append(list, text)
		}
	}
	return list
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s is no file, or larger than %d bytes", path, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
