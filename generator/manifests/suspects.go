package manifests

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
)

// byAccident are directories and files that lie in a project and that no service
// on a device needs.
var byAccident = map[string]string{
	".git": "the history of the project", ".hg": "the history of the project", ".svn": "the history of the project",
	"node_modules": "packages of npm", ".venv": "packages of Python", "__pycache__": "caches of Python",
}

// credentials are files that hold credentials of a person or a build host.
var credentials = []string{".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", "id_rsa", "id_ecdsa", "id_ed25519"}

// secretMarks are texts near the beginning of a file that is a private key.
var secretMarks = []string{"PRIVATE KEY-----", "AGE-SECRET-KEY-1", "PuTTY-User-Key-File"}

// maxWarnings bounds the warnings about one kind.
const maxWarnings = 10

// Suspects returns a warning for each directory and file in the copy or directory dir
// that was probably not meant to be shipped, with its size: histories, packages that
// belong into images, and private keys, credentials, passwords and tokens in plain. known
// are files that are warned of elsewhere, or that may be shipped in plain.
func Suspects(dir string, known []string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	var accidents, secrets, passwords []string
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if what, ok := byAccident[d.Name()]; ok {
			files, size, err := sizeOf(root.FS(), name)
			if err != nil {
				return err
			}
			accidents = append(accidents, fmt.Sprintf("%s is shipped: %s, %s with %s; name it in %s, or move it out of the manifests directory", name, what, metered.Count(files, "file"), SizeText(size), IgnoreFile))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || slices.Contains(known, name) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what, err := secret(root, name)
		switch {
		case err != nil:
			return err
		case what == "":
			if info.Size() > maxManifest || !manifest.IsManifest(name) && !isEnvFile(name) {
				return nil
			}
			b, err := root.ReadFile(name)
			if list := exposedIn(name, b); len(list) > 0 {
				passwords = append(passwords, exposedText(name, list))
			}
			return err
		default:
			secrets = append(secrets, fmt.Sprintf("%s (%s) is shipped in plain, and whoever has the artifact can read it: %s; if no service needs it, name it in %s", name, SizeText(info.Size()), what, IgnoreFile))
			return nil
		}
	})
	return slices.Concat(atMost(accidents), atMost(secrets), atMost(passwords)), err
}

// secret says what secret a file holds; "" if it seems to hold none.
func secret(root *os.Root, name string) (string, error) {
	if base := path.Base(name); slices.Contains(credentials, base) {
		return "it holds credentials", nil
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	for _, mark := range secretMarks {
		if bytes.Contains(head, []byte(mark)) {
			return "it is a private key", nil
		}
	}
	return "", nil
}

// sizeOf counts the files at and below name, and adds up their bytes.
func sizeOf(dir fs.FS, name string) (files int, size int64, err error) {
	err = fs.WalkDir(dir, name, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files, size = files+1, size+info.Size()
		return nil
	})
	return files, size, err
}

// SizeText writes a number of bytes for people.
func SizeText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// atMost shortens a long list of warnings.
func atMost(list []string) []string {
	if len(list) <= maxWarnings {
		return list
	}
	var rest []string
	for _, w := range list[maxWarnings:] {
		name, _, _ := strings.Cut(strings.Replace(w, ": ", " ", 1), " ")
		rest = append(rest, name)
	}
	return append(list[:maxWarnings:maxWarnings], fmt.Sprintf("and %d more of the kind, such as %s", len(rest), rest[0]))
}
