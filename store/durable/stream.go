package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact/scratch"
)

// File is a new file that is written in parts, for content too large to hold in
// memory. It has a temporary name until Commit.
type File struct {
	file *os.File // nil after Commit and Abort
}

// Create begins a file in the directory of path, which must exist. The caller ends it
// with Commit, and with Abort in any case.
func Create(path string) (*File, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := createTemp(dir, TempPrefix+base+"-*")
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// createTemp makes a temporary file that no Sweep removes before it is closed.
func createTemp(dir, pattern string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, pattern)
		if err != nil || scratch.Claim(f) {
			return f, err
		}
		_ = f.Close()
	}
}

// makeTemp makes a temporary directory that no Sweep removes before claim is closed.
func makeTemp(dir, pattern string) (path string, claim *os.File, err error) {
	for {
		if path, err = os.MkdirTemp(dir, pattern); err != nil {
			return "", nil, err
		}
		switch claim, err = os.Open(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", nil, err
		case scratch.Claim(claim):
			return path, claim, nil
		}
		_ = claim.Close()
	}
}

func (f *File) Write(p []byte) (int, error) { return f.file.Write(p) }

// Commit gives the file its name, in the directory where it was created. It replaces
// an existing file of that name, atomically and durably.
func (f *File) Commit(path string, perm fs.FileMode) error {
	temp := f.file.Name()
	if err := f.file.Chmod(perm); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", temp, err)
	}
	base := filepath.Base(path)
	if err := Point("rename." + base); err != nil {
		return fmt.Errorf("rename %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	// It is closed when it has its name: another process that sweeps does not take it.
	file := f.file
	f.file = nil
	if err := file.Close(); err != nil {
		return err
	}
	// From here on, a power cut leaves either the old or the new content, never
	// a part.
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return Point("wrote." + base)
}

// Abort removes a file that was not committed. After Commit it does nothing.
func (f *File) Abort() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	_ = os.Remove(f.file.Name())
	f.file = nil
}
