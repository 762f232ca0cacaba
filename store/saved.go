package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
)

// This file keeps copies of components. A sub-module without the feature stage keeps
// a component only under its URL, so loading another one with that URL overwrites it.
// A release that may be needed again keeps a copy in its own directory, and the copy
// is removed with the release.

// savedPath is the file that keeps a release's copy of the component url.
func (a *App) savedPath(id, url string) string {
	return filepath.Join(a.releaseDir(id), savedDir, fmt.Sprintf("%x", sha256.Sum256([]byte(url))))
}

// Saved returns the file with a release's copy of the component url; ok is false
// if the release has none. It needs no lock.
func (a *App) Saved(id, url string) (path string, ok bool) {
	path = a.savedPath(id, url)
	st, err := os.Lstat(path)
	return path, err == nil && st.Mode().IsRegular()
}

// SaveComponent makes a release's copy of the component url, if the release has
// none. save writes the component to a path that does not exist. When
// SaveComponent returns nil the copy is durable; only then does Saved find it.
func (a *App) SaveComponent(id, url string, save func(path string) error) error {
	path, ok := a.Saved(id, url)
	if ok {
		return nil
	}
	dir := filepath.Dir(path)
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp := filepath.Join(dir, durable.TempPrefix+filepath.Base(path))
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := save(temp); err != nil {
		return err
	}
	if err := syncSaved(temp); err != nil {
		return err
	}
	return durable.Rename(temp, path)
}

// syncSaved makes a file durable that a sub-module wrote. It refuses an empty
// file and anything that is not a regular file.
func syncSaved(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("nothing was written")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 {
		return errors.New("what was written is not a file, or is empty")
	}
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	return f.Sync()
}

// DropSaved removes a release's copies once the components are back in place.
func (a *App) DropSaved(id string) error {
	dir := filepath.Join(a.releaseDir(id), savedDir)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return durable.RemoveAll(dir)
}
