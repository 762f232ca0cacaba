package store

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
	"github.com/mender-app/mender-app/store/durable"
)

// This file keeps the records of staged artifacts whose components are loaded
// beside what runs, so that their installation has nothing to load.
//
// A record lies beside the artifact, as a release that no application has. It is written
// before the first component is loaded, and removed after the last one is deleted, so
// everything that a kill leaves can be found. It is complete when all of it is durable. A
// record that is not, or whose artifact is no longer staged, is to be undone. Nothing else
// says what has to be done, so a kill needs no record of its own.
//
// An installation does not read the records to know what is there: it loads each component
// again, and a sub-module reads nothing of one that is present. This file must not know
// how anything is loaded or deleted, nor what is in an artifact.

// Names in the  See store/FORMAT.md.
const (
	loadedDir     = "staged"
	loadedSuffix  = ".loaded"
	stagedSuffix  = ".json"
	corruptSuffix = ".corrupt"
	loadedFormat  = 1
	maxLoadRecord = 4 << 20
)

// LoadRecord lists the loaded components of a staged artifact.
type LoadRecord struct {
	// Release is what the artifact brings. Its ID is that of no release.
	Release *Release
	// Engine is how many bytes its components take, as the artifact says.
	Engine int64

	artifact digest.Digest
}

// loadedFile is the file of a record.
type loadedFile struct {
	Format  int      `json:"format"`
	Engine  int64    `json:"engine"`
	Release *Release `json:"release"`
}

// NewLoadRecord makes the record of a staged artifact. Nothing is written.
func NewLoadRecord(artifact digest.Digest, r *Release, engine int64) LoadRecord {
	r.ID = recordID(artifact)
	return LoadRecord{Release: r, Engine: engine, artifact: artifact}
}

// recordID names what an artifact brings. The names of releases begin with a number.
func recordID(artifact digest.Digest) string { return "staged-" + artifact.Hex()[:12] }

func (s *Store) recordPath(artifact digest.Digest, suffix string) string {
	return s.Meta(filepath.Join(loadedDir, artifact.Hex()+suffix))
}

// Write writes the record. It is durable when Write returns nil.
func (r LoadRecord) Write(s *Store) error {
	r.Release.Format = Format
	data, err := json.MarshalIndent(loadedFile{loadedFormat, r.Engine, r.Release}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(s.recordPath(r.artifact, loadedSuffix), append(data, '\n'), 0o600)
}

// Remove removes the record. What it names must be deleted before.
func (r LoadRecord) Remove(s *Store) error {
	return durable.Remove(s.recordPath(r.artifact, loadedSuffix))
}

// Staged reports whether the record's artifact is still staged.
func (r LoadRecord) Staged(s *Store) bool {
	_, err := os.Lstat(s.recordPath(r.artifact, stagedSuffix))
	return !errors.Is(err, fs.ErrNotExist)
}

// doomed reports whether the record is to be undone.
func (r LoadRecord) doomed(s *Store) bool { return !r.Release.Complete || !r.Staged(s) }

// LoadRecords lists all records. The error is a *CorruptError for a damaged one: then
// anything may be needed. It needs no lock.
func (s *Store) LoadRecords() (list []LoadRecord, err error) {
	entries, err := os.ReadDir(s.Meta(loadedDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		hex, ok := strings.CutSuffix(e.Name(), loadedSuffix)
		d, err := digest.FromHex(hex)
		if !ok || err != nil {
			continue
		}
		r, err := s.readRecord(d)
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

func (s *Store) readRecord(artifact digest.Digest) (*LoadRecord, error) {
	path := s.recordPath(artifact, loadedSuffix)
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxLoadRecord {
		return nil, &CorruptError{Path: path, Err: fmt.Errorf("%d bytes long", st.Size())}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f loadedFile
	if err = json.Unmarshal(data, &f); err == nil && f.Format > loadedFormat {
		return nil, fmt.Errorf("%s: %w", path, ErrNewer)
	}
	if err == nil && f.Release == nil {
		err = errors.New("it names no release")
	}
	if err == nil {
		err = names.Check(f.Release.Application)
	}
	if err != nil {
		return nil, &CorruptError{Path: path, Err: err}
	}
	f.Release.ID = recordID(artifact)
	return &LoadRecord{Release: f.Release, Engine: max(f.Engine, 0), artifact: artifact}, nil
}

// DoomedRecords lists the records that are to be undone. A damaged one is renamed, and the error
// says so: what it names stays in the engine.
func (s *Store) DoomedRecords() (list []LoadRecord, err error) {
	all, err := s.LoadRecords()
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		return nil, errors.Join(fmt.Errorf("%w; it is kept as %s: what it names stays in the engine until the artifact is staged and loaded again",
			err, filepath.Base(corrupt.Path)+corruptSuffix), durable.Rename(corrupt.Path, corrupt.Path+corruptSuffix))
	}
	return slices.DeleteFunc(all, func(r LoadRecord) bool { return !r.doomed(s) }), err
}

// AnyDoomed reports whether DoomedRecords may have something to say. It needs no lock.
func (s *Store) AnyDoomed() bool {
	all, err := s.LoadRecords()
	return err != nil || slices.ContainsFunc(all, func(r LoadRecord) bool { return r.doomed(s) })
}

// LoadRecord returns the complete record of a staged artifact; nil if there is none.
func (s *Store) LoadRecord(artifact digest.Digest) *LoadRecord {
	r, err := s.readRecord(artifact)
	if err != nil || !r.Release.Complete {
		return nil
	}
	return r
}

// LoadedBytes returns how many bytes a staged artifact takes in the engine. What is loaded only in
// part counts as a whole.
func (s *Store) LoadedBytes(artifact digest.Digest) int64 {
	r, err := s.readRecord(artifact)
	if err != nil {
		return 0
	}
	return r.Engine
}

// LoadedDigests returns what complete records of an application and its orchestrator have
// loaded, by digest.
func (s *Store) LoadedDigests(application, orchestrator string) map[digest.Digest]bool {
	all, _ := s.LoadRecords() // a damaged one counts for nothing here
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
