// Package manifests reads the manifests of an application. It lists the container
// images that they use, with file and line. It refuses what would fail on a device,
// which loads its images from an artifact and pulls nothing. It lists what services
// can reach beyond their containers. It also makes the tree that an artifact carries:
// without what .menderappignore names, with encrypted secrets and resolved variables.
//
// It knows compose projects and Kubernetes manifests, and nothing of where
// images come from or how an artifact looks.
package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
)

// The orchestrators whose manifests this package reads, as metadata names them.
const (
	DockerCompose = "docker-compose"
	K8s           = "k8s"
)

// Place is a line of a file; Line 0 means the file as a whole. File is relative
// to the manifests directory.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
}

// String writes the place as compilers do, so that editors can follow it.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Use is one place where an image is needed.
type Use struct {
	Image string `json:"image"`
	By    string `json:"by"` // who uses it: `service "web"`, `Deployment "web", container "nginx"`
	Place Place  `json:"place"`
}

// Variable is a variable that the manifests use and the device does not have. It
// is shipped with them.
type Variable struct {
	Name, Value string
}

// HealthCheck is what a compose service says of its health check; what is 0 is left to the
// image.
type HealthCheck struct {
	Service, Image                       string
	Place                                Place
	Test                                 bool // it says what is run
	Off                                  bool // it switches off the image's
	Interval, StartPeriod, StartInterval time.Duration
}

// Found is what manifests hold. Uses are in the order of the files, one for
// each place; one image may be used in several.
type Found struct {
	Uses     []Use
	Warnings []string
	Notes    []string   // what is worth a line, and not a reason to stop
	Ship     []Variable // compose only, sorted by name
	// HealthChecks are of compose only, one for each service, also if it says nothing.
	HealthChecks []HealthCheck
	Services     []string // by their names: of Compose sorted, of Kubernetes in the order of the files
	// Needs are the files and directories that the device reads, relative to the
	// directory: manifests, and what they mount or include. Some may not exist.
	Needs []string
	// Encrypt are the files that hold nothing but secrets, relative to the
	// directory: those that are to be encrypted, if that was asked for.
	Encrypt []string
	// Plain are files with secrets that are shipped as they are, relative to the
	// directory. There is a warning about each.
	Plain []string
	// Encrypted is true if there are encrypted secrets already.
	Encrypted bool
}

// Images returns the images used, each once, in the order of their first use.
func (f *Found) Images() []string {
	var list []string
	seen := map[string]bool{}
	for _, u := range f.Uses {
		if !seen[u.Image] {
			seen[u.Image] = true
			list = append(list, u.Image)
		}
	}
	return list
}

// Error is something in the manifests that cannot work on a device.
type Error struct {
	Place Place
	Text  string
	Hint  string // what to do about it; may be empty
	err   error  // the cause, if the system gave one
}

func (e *Error) Error() string { return e.Place.String() + ": " + e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// maxManifest bounds one YAML file, in bytes. It is far above what a person writes.
const maxManifest = 16 << 20

// ComposeProject finds the Compose file of a directory, as docker compose does, and
// reads the name that it gives the project; "" if it gives none. There is no file if the
// file's name is "".
func ComposeProject(dir string) (file, name string, err error) {
	for _, f := range cli.DefaultFileNames {
		if _, err := os.Lstat(filepath.Join(dir, f)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, err := readManifest(dir, f)
		if err != nil {
			return "", "", err
		}
		var project struct {
			Name string `yaml:"name"`
		}
		if err := yaml.Unmarshal(b, &project); err != nil {
			return "", "", yamlError(f, err)
		}
		return f, project.Name, nil
	}
	return "", "", nil
}

// readManifest reads one file of the tree, of at most maxManifest bytes. It follows
// links that stay inside.
func readManifest(dir, rel string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &Error{Place: Place{File: rel}, Text: err.Error()}
	}
	defer root.Close()
	return readIn(root, rel)
}

// readIn is readManifest in an open directory. Its errors are of the type Error.
func readIn(root *os.Root, rel string) ([]byte, error) {
	b, err := func() ([]byte, error) {
		// A pipe is opened without waiting for a writer.
		f, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		switch {
		case err != nil:
			return nil, err
		case info.IsDir():
			return nil, syscall.EISDIR
		case !info.Mode().IsRegular():
			return nil, errors.New("is no file")
		}
		b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
		if err == nil && len(b) > maxManifest {
			return nil, fmt.Errorf("more than %d bytes are more than a manifest may have", maxManifest)
		}
		return b, err
	}()
	if err == nil {
		return b, nil
	}
	e := &Error{Place: Place{File: rel}, err: err}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	if e.Text = err.Error(); strings.Contains(e.Text, "escapes") { // the word of os.Root
		e.Text, e.Hint = "leads out of the manifests directory, by a link", "put a copy of the file there"
	}
	return nil, e
}

// relative gives path's name inside dir, and false if it is not inside.
func relative(dir, path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// realDir returns dir as an absolute path without links. Compose resolves some
// names against the one and some against the other.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("manifests directory: %w", err)
	}
	return abs, nil
}
