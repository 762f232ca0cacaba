// Package store keeps the state of mender-app on a device: the applications,
// their releases, the journal of open deployments, and a history that stays when
// an application is removed. FORMAT.md describes the layout.
//
// Everything is written through store/durable: when a method returns nil, its
// effect is durable, and a crash at any instant leaves the state before or after
// it. The package must not know orchestrators, Mender, the content of a
// component, or the meaning of a phase (modules/deploy defines it).
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/store/durable"
)

// Format is the version of the layout that this package writes. It reads every
// layout of this number; fields are only ever added within one.
const Format = 1

// Names inside a store. See FORMAT.md.
const (
	metaDir       = ".mender-app"
	lockFile      = "lock"
	historyDir    = "history"
	reserveFile   = "reserve"
	stateFile     = "app.json"
	releasesDir   = "releases"
	releaseFile   = "release.json"
	manifestsName = "manifests"
	mountsName    = "mounts"               // of the sub-module
	secretsName   = "secrets"              // of the sub-module
	unnamedName   = "volumes-unnamed.json" // of the sub-module
	keptName      = "volumes-kept.json"    // of the sub-module
	savedDir      = "components"
	corruptInfix  = ".corrupt-"
)

// Errors a caller may branch on.
var (
	// ErrName: an application may not have this name.
	ErrName = errors.New("invalid application name")
	// ErrNoApp: the store has no such application.
	ErrNoApp = errors.New("no such application")
	// ErrNoRelease: the application has no such release.
	ErrNoRelease = errors.New("no such release")
	// ErrNewer: a newer version of mender-app wrote the store, in a form this version
	// does not understand.
	ErrNewer = errors.New("the store was written by a newer mender-app")
)

// NoAppError is an [ErrNoApp] with the name that was asked for.
type NoAppError struct{ Name string }

func (e *NoAppError) Error() string { return ErrNoApp.Error() + ": " + e.Name }

// Unwrap makes the error an ErrNoApp.
func (e *NoAppError) Unwrap() error { return ErrNoApp }

// CorruptError reports that a file of the store is damaged. The file was not
// changed.
type CorruptError struct {
	Path string
	Err  error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Path, e.Err) }
func (e *CorruptError) Unwrap() error { return e.Err }

// Store is a directory with applications. A process must hold the lock to use a
// method, unless the method says that it needs none.
type Store struct {
	dir     string
	modules containermodules.Store
}

// At returns the store in dir, which need not exist yet. Nothing is read or
// written.
func At(dir string) *Store { return &Store{dir: filepath.Clean(dir)} }

// Beside returns the same store, for a device where mender-container-modules may have
// left a project in its own store.
func (s *Store) Beside(modules containermodules.Store) *Store { return &Store{s.dir, modules} }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Prepare creates the store if it is missing, and removes the temporary files of
// interrupted writes, but for those in the directories of applications ([App.Sweep]). The
// caller holds the lock.
func (s *Store) Prepare() error {
	if err := s.Protect(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := durable.MkdirAll(s.meta(historyDir), 0o700); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	dirs := []string{s.dir, s.meta("")}
	// Whoever has files of its own in there sweeps only when it comes by.
	entries, err := os.ReadDir(s.meta(""))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			dirs = append(dirs, s.meta(e.Name()))
		}
	}
	for _, dir := range dirs {
		if err := durable.Sweep(dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// Meta is a path for a file that belongs to no application, such as the state
// of a standalone deployment.
func (s *Store) Meta(name string) string { return s.meta(name) }

func (s *Store) meta(name string) string { return filepath.Join(s.dir, metaDir, name) }

// Temp makes a directory for temporary files on the store's file system, whose free
// space was checked. The caller holds the store's lock and removes the directory; what a
// kill leaves is removed with Meta(TempName) by the next holder of the lock.
func (s *Store) Temp() (string, error) {
	dir := s.meta(TempName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "call-*")
}

// TempName is the name of the directory that Temp makes its directories in, for Meta.
const TempName = "tmp"

func (s *Store) appDir(name string) string { return filepath.Join(s.dir, name) }

// Apps lists the applications, sorted by name, including those not adopted yet. It
// needs no lock.
func (s *Store) Apps() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var apps []string
	if p, ok := s.modules.Project(); ok {
		if st, err := os.Stat(s.appDir(p.Name)); err != nil || !st.IsDir() {
			apps = append(apps, p.Name) // the others have a directory here
		}
	}
	for _, e := range entries {
		if !e.IsDir() || names.Check(e.Name()) != nil {
			continue
		}
		if s.hasState(e.Name()) || s.isLegacy(e.Name()) {
			apps = append(apps, e.Name())
		}
	}
	slices.Sort(apps)
	return apps, nil
}

// hasState reports whether the directory has a state file, even a damaged one or
// one that keepAside renamed, or what is there only with one: its copy, or a release that
// an artifact brought.
func (s *Store) hasState(name string) bool {
	if _, err := os.Lstat(filepath.Join(s.appDir(name), stateFile)); err == nil {
		return true // mostly
	}
	entries, err := os.ReadDir(s.appDir(name))
	if err != nil {
		return false
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == stateFile || e.Name() == stateFile+copySuffix || strings.HasPrefix(e.Name(), stateFile+corruptInfix)
	}) {
		return true
	}
	releases, err := (&App{Name: name, store: s}).Releases()
	return err == nil && slices.ContainsFunc(releases, func(id string) bool { return id != AdoptedID })
}

// keepAside renames a damaged file to the first free NAME.corrupt-N and
// returns that name.
func keepAside(path string) (string, error) {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s%s%d", path, corruptInfix, n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, durable.Rename(path, aside)
		} else if err != nil {
			return "", err
		}
	}
}

// readFile reads a file of the store of at most maxFile bytes.
func readFile(path string) ([]byte, error) { return readUpTo(path, maxFile) }

// readUpTo reads a file of at most most bytes. The error is a *CorruptError for a
// longer one.
func readUpTo(path string, most int64) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if f.size > most {
		return nil, &CorruptError{path, fmt.Errorf("%d bytes long", f.size)}
	}
	return f.read(0)
}

// maxFile is the greatest size of a file of the store, in bytes.
const maxFile = 16 << 20
