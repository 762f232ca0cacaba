package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/generator/write"
)

// CopyTree copies what is shipped of the directory from to the new directory to. The
// umask does not change the permissions of the copies. Errors of the disk are of
// the type [write.Error].
func CopyTree(from, to string, ignore *Ignore) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	dirs := map[string]fs.FileMode{}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return &write.Error{Err: err}
	}
	// A directory may be ignored although a file in it is shipped.
	parents := func(name string) error {
		for at := path.Dir(name); dirs[filepath.Join(to, at)] == 0; at = path.Dir(at) {
			info, err := root.Lstat(at)
			if err != nil {
				return err
			}
			dirs[filepath.Join(to, at)] = info.Mode().Perm() | 0o700
		}
		if err := os.MkdirAll(filepath.Join(to, path.Dir(name)), 0o700); err != nil {
			return &write.Error{Err: err}
		}
		return nil
	}
	n := 0
	err = ignore.Walk(root.FS(), func(name string, d fs.DirEntry) error {
		if n++; n > maxFiles {
			return tooMany(from)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if name != "." {
			if err := parents(name); err != nil {
				return err
			}
		}
		switch {
		case d.IsDir():
			dirs[target] = info.Mode().Perm() | 0o700
			err = os.MkdirAll(target, 0o700)
		case !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
			return nil // CheckTree refuses it, if it is to be shipped
		case info.Mode()&fs.ModeSymlink != 0:
			link, lerr := root.Readlink(name)
			if lerr != nil {
				return lerr
			}
			err = os.Symlink(link, target)
		default:
			return copyFile(root, name, target, info.Mode().Perm())
		}
		if err != nil {
			return &write.Error{Err: err}
		}
		return nil
	})
	for dir, mode := range dirs {
		if err == nil {
			if cerr := os.Chmod(dir, mode); cerr != nil {
				err = &write.Error{Err: cerr}
			}
		}
	}
	return err
}

func copyFile(root *os.Root, name, target string, mode fs.FileMode) (err error) {
	from, err := root.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return &write.Error{Err: err}
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Chmod(mode)
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return &write.Error{Err: err}
	}
	return nil
}

// EncryptFiles replaces files of a copy by their encrypted form, with the suffix
// [names.EncryptedSuffix].
func EncryptFiles(dir string, files []string, seal func([]byte) ([]byte, error)) error {
	for _, name := range files {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if b, err = seal(b); err != nil {
			return fmt.Errorf("encrypt %s: %w", name, err)
		}
		if err := writeMode(path+names.EncryptedSuffix, b, info.Mode().Perm()); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return &write.Error{Err: err}
		}
	}
	return nil
}

// AddVariables appends variables to the .env of a copy: the last value of a name
// counts.
func AddVariables(dir string, variables []Variable) error {
	if len(variables) == 0 {
		return nil
	}
	file := filepath.Join(dir, ".env")
	var text strings.Builder
	b, err := os.ReadFile(file) // may be a link: CheckTree refuses those that lead out
	if err == nil {
		text.Write(b)
		if len(b) > 0 && b[len(b)-1] != '\n' {
			text.WriteByte('\n')
		}
		if err := os.Remove(file); err != nil {
			return &write.Error{Err: err}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("manifests directory: %w", err)
	}
	text.WriteString("# resolved on the build host\n")
	for _, v := range variables {
		text.WriteString(v.Name + "=" + quoteEnv(v.Value) + "\n")
	}
	return writeMode(file, []byte(text.String()), 0o644)
}

// WriteNew writes a new file into a copy.
func WriteNew(dir, name string, text []byte) error {
	file := filepath.Join(dir, name)
	if _, err := os.Lstat(file); err == nil {
		return &Error{Place: Place{File: name}, Text: "app-gen writes a file of this name", Hint: "give it another name"}
	}
	return writeMode(file, text, 0o644)
}

// writeMode writes a file with these permissions, whatever the umask.
func writeMode(path string, b []byte, mode fs.FileMode) error {
	err := os.WriteFile(path, b, 0o600)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return &write.Error{Err: err}
	}
	return nil
}

// quoteEnv writes a value so that an env file gives it back as it is: within
// single quotes nothing is expanded, and a single quote needs double ones.
func quoteEnv(v string) string {
	if !strings.ContainsAny(v, "'\n") {
		return "'" + v + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "\n", `\n`).Replace(v) + `"`
}
