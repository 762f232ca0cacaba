package secrets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// File is a decrypted file.
type File struct {
	Text     []byte
	UID, GID int
	Mode     fs.FileMode // permission bits only
}

// Dir is the directory of the decrypted files of one application, on a tmpfs. It
// also keeps records on the disk: the encrypted files, from which Restore makes the
// decrypted files again after a restart of the machine. Both are named by Keys.Name.
type Dir struct {
	base    string // Settings.Dir
	path    string
	records string // "" if nothing is recorded
}

// ForApplication returns the directory of an application. It keeps its records in
// the directory records; with "" it keeps none. It creates nothing yet.
func (s Settings) ForApplication(app, records string) *Dir {
	return &Dir{base: s.Dir, path: filepath.Join(s.Dir, app), records: records}
}

// record is a file of the records, in JSON.
type record struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Mode uint32 `json:"mode"`
	Age  []byte `json:"age"` // the encrypted file
}

// recordSuffix ends the name of a record's file.
const recordSuffix = ".json"

// Path returns the path of the decrypted file with that name.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Record keeps the encrypted form of a file, durably. Call it before Put, so that a
// container that uses the file finds it again after a power cut.
func (d *Dir) Record(name string, f File, sealed []byte) error {
	if d.records == "" {
		return nil
	}
	at := filepath.Join(d.records, name+recordSuffix)
	if _, err := os.Lstat(at); err == nil {
		return nil // the same name means the same content
	}
	b, err := json.Marshal(record{f.UID, f.GID, uint32(f.Mode), sealed})
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(d.records, 0o700); err != nil {
		return err
	}
	return durable.WriteFile(at, b, 0o600)
}

// Ready creates the directory with access for root only. It refuses a directory that
// is not on a tmpfs.
func (d *Dir) Ready() error {
	if err := os.MkdirAll(d.base, 0o700); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.base, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: d.base, Err: err}
	}
	if t := int64(st.Type); t != unix.TMPFS_MAGIC && t != unix.RAMFS_MAGIC { // its type depends on the machine
		return fmt.Errorf("%s is not on a tmpfs, and decrypted secrets are never written to a disk: mount a tmpfs there, or set SECRETS_DIR", d.base)
	}
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, dir := range []string{d.base, d.path} {
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		if !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			return fmt.Errorf("%s is not a directory of root: remove it", dir)
		}
		if info.Mode().Perm() != 0o700 { // an engine creates missing directories with a different mode
			if err := os.Chmod(dir, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// Put writes a decrypted file, unless it already exists with the same content, owner
// and mode. made reports whether it wrote the file. Call Ready before.
func (d *Dir) Put(name string, f File) (made bool, err error) {
	at := d.Path(name)
	if d.same(at, f) {
		return false, nil
	}
	// An engine creates an empty directory in place of a missing file.
	if info, err := os.Lstat(at); err == nil && info.IsDir() {
		if err := os.Remove(at); err != nil {
			return false, err
		}
	}
	tmp, err := os.CreateTemp(d.path, ".new-*")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err := tmp.Write(f.Text); err != nil {
		return false, err
	}
	if err := tmp.Chown(f.UID, f.GID); err != nil {
		return false, err
	}
	if err := tmp.Chmod(f.Mode); err != nil {
		return false, err
	}
	if err := tmp.Close(); err != nil {
		return false, err
	}
	return true, os.Rename(tmp.Name(), at)
}

// same reports whether a file exists with the content, owner and mode of f.
func (d *Dir) same(at string, f File) bool {
	info, err := os.Lstat(at)
	if err != nil || info.Mode() != f.Mode || info.Size() != int64(len(f.Text)) {
		return false
	}
	st := info.Sys().(*syscall.Stat_t)
	text, err := os.ReadFile(at)
	return err == nil && int(st.Uid) == f.UID && int(st.Gid) == f.GID && bytes.Equal(text, f.Text)
}

// Recorded reports whether there is anything to restore.
func (d *Dir) Recorded() (bool, error) {
	names, err := d.recorded()
	return len(names) > 0, err
}

func (d *Dir) recorded() ([]string, error) {
	entries, err := os.ReadDir(d.records)
	if d.records == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names, err
}

// Restore recreates all recorded files. After an error it continues with the next
// file, and returns all errors.
func (d *Dir) Restore(k *Keys) error {
	names, err := d.recorded()
	if err != nil || len(names) == 0 {
		return err
	}
	if err := d.Ready(); err != nil {
		return err
	}
	var all []error
	for _, name := range names {
		if err := d.restore(k, name); err != nil {
			all = append(all, fmt.Errorf("secret %s: %w", name, err))
		}
	}
	return errors.Join(all...)
}

func (d *Dir) restore(k *Keys, name string) error {
	b, err := os.ReadFile(filepath.Join(d.records, name+recordSuffix))
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return err
	}
	text, err := k.Decrypt(bytes.NewReader(r.Age), names.MaxSecret)
	if err != nil {
		return err
	}
	// Do not compare the name: it depends on the device's first key, which may have
	// changed.
	_, err = d.Put(name, File{Text: text, UID: r.UID, GID: r.GID, Mode: fs.FileMode(r.Mode) & fs.ModePerm})
	return err
}

// Sweep removes the files and records for whose names keep returns false.
func (d *Dir) Sweep(keep func(name string) bool) error {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !keep(e.Name()) {
			if err := os.RemoveAll(d.Path(e.Name())); err != nil {
				return err
			}
		}
	}
	names, err := d.recorded()
	if err != nil {
		return err
	}
	left := 0
	for _, name := range names {
		if keep(name) {
			left++
			continue
		}
		if err := durable.Remove(filepath.Join(d.records, name+recordSuffix)); err != nil {
			return err
		}
	}
	if left == 0 {
		return d.removeRecords()
	}
	return durable.Sweep(d.records)
}

// Remove removes all files and records of the application.
func (d *Dir) Remove() error {
	if err := os.RemoveAll(d.path); err != nil {
		return err
	}
	return d.removeRecords()
}

func (d *Dir) removeRecords() error {
	if _, err := os.Lstat(d.records); errors.Is(err, fs.ErrNotExist) { // also covers "": no records at all
		return nil
	}
	return durable.RemoveAll(d.records)
}
