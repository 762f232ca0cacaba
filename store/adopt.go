package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/store/durable"
)

// The layout of the shell app-update-module: NAME/manifests is a directory,
// NAME/images/urls lists the images, NAME-last is a copy made after each success,
// and NAME-previous is the previous release while a new one is being installed.
// After an interruption NAME may lack manifests.
const (
	legacyImages   = "images"
	legacyLast     = "-last"
	legacyPrevious = "-previous"
	// AdoptedID is the name of the release that adoption makes.
	AdoptedID = "0-adopted"
)

// left is what another update module left behind for an application that is not
// adopted yet.
type left struct {
	urls         []string // of its images
	orchestrator string   // "" if it is not known
	dir          string   // containermodules's store, "" for the shell reference
	copyTo       func(dir string) error
}

// legacySource is the directory with the newest complete manifests that the shell
// reference left for an application.
func (s *Store) legacySource(name string) (string, bool) {
	for _, dir := range []string{name, name + legacyPrevious, name + legacyLast} {
		dir = filepath.Join(s.dir, dir, manifestsName)
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			return dir, true
		}
	}
	return "", false
}

// isReference reports whether the directory has an application of the shell
// reference. Its own copies are not applications.
func (s *Store) isReference(name string) bool {
	if st, err := os.Lstat(s.appDir(name)); err != nil || !st.IsDir() {
		return false
	}
	for _, suffix := range []string{legacyLast, legacyPrevious} {
		if base, ok := strings.CutSuffix(name, suffix); ok && base != "" {
			if st, err := os.Stat(s.appDir(base)); err == nil && st.IsDir() {
				return false
			}
		}
	}
	_, ok := s.legacySource(name)
	return ok
}

// fromModules is the project of mender-container-modules with the name.
func (s *Store) fromModules(name string) (containermodules.Project, bool) {
	p, ok := s.modules.Project()
	return p, ok && p.Name == name
}

// isLegacy reports whether another update module installed an application that is not
// adopted yet.
func (s *Store) isLegacy(name string) bool {
	if s.hasState(name) {
		return false
	}
	_, ok := s.fromModules(name)
	return ok || s.isReference(name)
}

// left returns the files of an application that is not adopted yet.
func (s *Store) left(name string) (left, error) {
	if !s.isLegacy(name) {
		return left{}, &NoAppError{name}
	}
	if !s.isReference(name) {
		p, _ := s.fromModules(name)
		return left{p.Images(), containermodules.Orchestrator, s.modules.Dir(), p.CopyTo}, nil
	}
	source, _ := s.legacySource(name)
	urls, err := legacyURLs(filepath.Join(filepath.Dir(source), legacyImages, "urls"))
	return left{urls: urls, copyTo: func(dir string) error { return durable.LinkTree(source, dir) }}, err
}

// Legacy reports whether an application is one of the shell reference or of
// mender-container-modules that was not adopted yet. It needs no lock.
func (s *Store) Legacy(name string) bool { return names.Check(name) == nil && s.isLegacy(name) }

// LegacyOrchestrator is the orchestrator of an application that was not adopted
// yet, "" if it is not known. It needs no lock.
func (s *Store) LegacyOrchestrator(name string) string {
	if !s.Legacy(name) {
		return ""
	}
	l, err := s.left(name)
	if err != nil {
		return ""
	}
	return l.orchestrator
}

// Rival returns the directory where mender-container-modules has a project with the
// application's name that was not adopted, "" for none. Compose cannot tell the two
// apart.
func (a *App) Rival() string {
	if _, ok := a.store.fromModules(a.Name); !ok || a.AdoptedFrom == a.store.modules.Dir() {
		return ""
	}
	return a.store.modules.Dir()
}

// NotAdoptedError reports that another update module installed an application, and
// that this store knows no release of it yet. It is an [ErrNoApp].
type NotAdoptedError struct{ Name string }

func (e *NotAdoptedError) Error() string {
	return fmt.Sprintf("%s is not adopted yet: install an artifact for it first", e.Name)
}

// Is makes the error an ErrNoApp.
func (e *NotAdoptedError) Is(target error) bool { return target == ErrNoApp }

// Adopt takes over an application of the shell reference or of
// mender-container-modules: its manifests and images become the release
// [AdoptedID]. The other module's files stay readable at their paths until
// [App.DropLegacy]. An interrupted adoption may be repeated. components turns the
// names of images into components.
func (s *Store) Adopt(name, orchestrator string, components func(urls []string) []Component) (*App, error) {
	l, err := s.left(name)
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", name, err)
	}
	a := &App{Name: name, State: State{Format: Format, Application: name}, store: s}
	if err := durable.RemoveAll(a.releaseDir(AdoptedID)); err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(a.releaseDir(AdoptedID), 0o700); err != nil {
		return nil, err
	}
	// A running container may have the files mounted.
	if err := l.copyTo(a.ReleaseManifests(AdoptedID)); err != nil {
		return nil, fmt.Errorf("adopt %s: %w", name, err)
	}
	r := &Release{
		ID: AdoptedID, Orchestrator: orchestrator, Components: components(l.urls),
		Created: time.Now().UTC(), Complete: true, Adopted: true,
	}
	if err := a.PutRelease(r); err != nil {
		return nil, err
	}
	if err := a.SyncRelease(AdoptedID); err != nil {
		return nil, err
	}
	a.Current, a.AdoptedFrom = AdoptedID, l.dir
	if err := a.Save(); err != nil {
		return nil, err
	}
	return a, a.pointAdopted()
}

// pointAdopted replaces the reference's directory with the link. The directory itself
// moves to the adopted release, because a running container may have it mounted.
func (a *App) pointAdopted() error {
	link := a.ManifestsDir()
	target := filepath.Join(releasesDir, AdoptedID, manifestsName)
	if st, err := os.Lstat(link); err != nil || !st.IsDir() {
		return durable.Symlink(target, link)
	}
	return durable.ReplaceDirWithLink(link, target, filepath.Join(a.releaseDir(AdoptedID), "original"))
}

// DropLegacy removes the other update module's files of an adopted application. It is
// idempotent.
func (a *App) DropLegacy() error {
	if a.AdoptedFrom != "" {
		if err := containermodules.At(a.AdoptedFrom).Drop(a.Name); err != nil {
			return err
		}
		a.AdoptedFrom = ""
		return a.Save()
	}
	images := filepath.Join(a.Dir(), legacyImages)
	if _, err := os.Lstat(images); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, suffix := range []string{legacyLast, legacyPrevious} {
		if a.store.hasState(a.Name + suffix) {
			continue // another application
		}
		if err := durable.RemoveAll(a.Dir() + suffix); err != nil {
			return err
		}
	}
	return durable.RemoveAll(images)
}

// maxURLs bounds the list of images of the shell reference.
const maxURLs = 10000

func legacyURLs(path string) ([]string, error) {
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var urls []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		url := strings.TrimSpace(lines.Text())
		if url != "" && len(urls) < maxURLs && !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls, lines.Err()
}
