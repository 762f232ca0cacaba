package durable

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	f, err := os.CreateTemp(dir, TempPrefix+base+"-*")
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
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
	if err := f.file.Close(); err != nil {
		return err
	}
	base := filepath.Base(path)
	if err := Point("rename." + base); err != nil {
		return fmt.Errorf("rename %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	f.file = nil
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
