// Package preloaded keeps the records of staged artifacts whose components are loaded
// beside what runs, so that their installation has nothing to load.
//
// A record lies beside the artifact, as a release that no application has. It is written
// before the first component is loaded, and removed after the last one is deleted, so
// everything that a kill leaves can be found. It is complete when all of it is durable. A
// record that is not, or whose artifact is no longer staged, is to be undone. Nothing else
// says what has to be done, so a kill needs no record of its own.
//
// An installation does not read the records to know what is there: it loads each component
// again, and a sub-module reads nothing of one that is present. The package must not know
// how anything is loaded or deleted, nor what is in an artifact.
package preloaded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

// Names in the store. See store/FORMAT.md.
const (
	dir          = "staged"
	suffix       = ".loaded"
	stagedSuffix = ".json"
	aside        = ".corrupt"
	format       = 1
	maxRecord    = 4 << 20
)

// Record is what is loaded of a staged artifact.
type Record struct {
	// Release is what the artifact brings. Its ID is that of no release.
	Release *store.Release
	// Engine is how many bytes its components take, as the artifact says.
	Engine int64

	artifact digest.Digest
}

// file is the file of a record.
type file struct {
	Format  int            `json:"format"`
	Engine  int64          `json:"engine"`
	Release *store.Release `json:"release"`
}

// Of makes the record of a staged artifact. Nothing is written.
func Of(artifact digest.Digest, r *store.Release, engine int64) Record {
	r.ID = id(artifact)
	return Record{Release: r, Engine: engine, artifact: artifact}
}

// id names what an artifact brings. The names of releases begin with a number.
func id(artifact digest.Digest) string { return "staged-" + artifact.Hex()[:12] }

func path(s *store.Store, artifact digest.Digest, suffix string) string {
	return s.Meta(filepath.Join(dir, artifact.Hex()+suffix))
}

// Write writes the record. It is durable when Write returns nil.
func (r Record) Write(s *store.Store) error {
	r.Release.Format = store.Format
	data, err := json.MarshalIndent(file{format, r.Engine, r.Release}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path(s, r.artifact, suffix), append(data, '\n'), 0o600)
}

// Remove removes the record. What it names must be deleted before.
func (r Record) Remove(s *store.Store) error { return durable.Remove(path(s, r.artifact, suffix)) }

// Staged reports whether the record's artifact is still staged.
func (r Record) Staged(s *store.Store) bool {
	_, err := os.Lstat(path(s, r.artifact, stagedSuffix))
	return !errors.Is(err, fs.ErrNotExist)
}

// doomed reports whether the record is to be undone.
func (r Record) doomed(s *store.Store) bool { return !r.Release.Complete || !r.Staged(s) }

// List lists all records. The error is a *store.CorruptError for a damaged one: then
// anything may be needed. It needs no lock.
func List(s *store.Store) (list []Record, err error) {
	entries, err := os.ReadDir(s.Meta(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		hex, ok := strings.CutSuffix(e.Name(), suffix)
		d, err := digest.FromHex(hex)
		if !ok || err != nil {
			continue
		}
		r, err := read(s, d)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just been removed
		}
		if err != nil {
			return nil, err
		}
		list = append(list, *r)
	}
	return list, nil
}

func read(s *store.Store, artifact digest.Digest) (*Record, error) {
	path := path(s, artifact, suffix)
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxRecord {
		return nil, &store.CorruptError{Path: path, Err: fmt.Errorf("%d bytes long", st.Size())}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f file
	if err = json.Unmarshal(data, &f); err == nil && f.Format > format {
		return nil, fmt.Errorf("%s: %w", path, store.ErrNewer)
	}
	if err == nil && f.Release == nil {
		err = errors.New("it names no release")
	}
	if err == nil {
		err = names.Check(f.Release.Application)
	}
	if err != nil {
		return nil, &store.CorruptError{Path: path, Err: err}
	}
	f.Release.ID = id(artifact)
	return &Record{Release: f.Release, Engine: max(f.Engine, 0), artifact: artifact}, nil
}

// Doomed lists the records that are to be undone. A damaged one is renamed, and the error
// says so: what it names stays in the engine.
func Doomed(s *store.Store) (list []Record, err error) {
	all, err := List(s)
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		return nil, errors.Join(fmt.Errorf("%w; it is kept as %s: what it names stays in the engine until the artifact is staged and loaded again",
			err, filepath.Base(corrupt.Path)+aside), durable.Rename(corrupt.Path, corrupt.Path+aside))
	}
	return slices.DeleteFunc(all, func(r Record) bool { return !r.doomed(s) }), err
}

// Any reports whether Doomed may have something to say. It needs no lock.
func Any(s *store.Store) bool {
	all, err := List(s)
	return err != nil || slices.ContainsFunc(all, func(r Record) bool { return r.doomed(s) })
}

// Find returns the complete record of a staged artifact; nil if there is none.
func Find(s *store.Store, artifact digest.Digest) *Record {
	r, err := read(s, artifact)
	if err != nil || !r.Release.Complete {
		return nil
	}
	return r
}

// BytesOf is how many bytes a staged artifact takes in the engine. What is loaded only in
// part counts as a whole.
func BytesOf(s *store.Store, artifact digest.Digest) int64 {
	r, err := read(s, artifact)
	if err != nil {
		return 0
	}
	return r.Engine
}

// Loaded returns what complete records of an application and its orchestrator have
// loaded, by digest.
func Loaded(s *store.Store, application, orchestrator string) map[digest.Digest]bool {
	all, _ := List(s) // a damaged one counts for nothing here
	loaded := map[digest.Digest]bool{}
	for _, r := range all {
		if r.Release.Complete && r.Release.Application == application && r.Release.Orchestrator == orchestrator {
			for _, c := range r.Release.Components {
				loaded[c.Digest] = true
			}
		}
	}
	return loaded
}
