package modules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/mender"
)

// maxValue bounds a plain value of the tree, and maxJSON a JSON document of
// it, in bytes.
const (
	maxValue = 64 << 10
	maxJSON  = 16 << 20
)

// Tree is the directory of files that the client gives to a call.
type Tree struct {
	dir     string
	streams *pipes // nil until Streams
}

// OpenTree returns the tree in dir, which must be a directory.
func OpenTree(dir string) (*Tree, error) {
	if dir == "" {
		return nil, errors.New("no file tree was given")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("file tree: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("file tree: %s is not a directory", dir)
	}
	return &Tree{dir: abs}, nil
}

// Dir is the tree's absolute path.
func (t *Tree) Dir() string { return t.dir }

// value reads a plain value. 3.4.0 writes it without a newline at its end and
// the C++ client with one. A missing file is an empty value.
func (t *Tree) value(name string) (string, error) {
	data, err := readBounded(filepath.Join(t.dir, name), maxValue)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSuffix(string(data), "\n"), err
}

// ArtifactName is the name of the artifact that is being installed.
func (t *Tree) ArtifactName() (string, error) { return t.value("header/artifact_name") }

// PayloadType is the type of the payload: this module's name.
func (t *Tree) PayloadType() (string, error) { return t.value("header/payload_type") }

// CurrentArtifactName is the artifact that the client takes to be installed. The
// client writes it when the update begins, so it names the previous artifact.
func (t *Tree) CurrentArtifactName() (string, error) { return t.value("current_artifact_name") }

// MetaData is the payload's meta-data as JSON; nil if there is none, for which
// the clients write the literal null.
func (t *Tree) MetaData() ([]byte, error) {
	data, err := readBounded(filepath.Join(t.dir, "header", "meta-data"), maxJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || string(trimmed) == "null" {
		return nil, nil
	}
	return data, nil
}

// Provides is what the client records when it commits the payload; nil if there is
// nothing, or if it is larger than 64 KiB or cannot be read.
func (t *Tree) Provides() map[string]string {
	var info struct {
		Provides map[string]string `json:"artifact_provides"`
	}
	data, err := readBounded(filepath.Join(t.dir, "header", "type-info"), maxValue)
	if err != nil || json.Unmarshal(data, &info) != nil {
		return nil
	}
	return info.Provides
}

// Header returns the artifact's header, without the payload: header-info and type-info.
// It lacks state scripts, because the client does not pass them on.
func (t *Tree) Header() (*mender.Header, error) {
	info, err := readBounded(filepath.Join(t.dir, "header", "header-info"), maxJSON)
	if err != nil {
		return nil, err
	}
	typ, err := readBounded(filepath.Join(t.dir, "header", "type-info"), maxJSON)
	if err != nil {
		return nil, err
	}
	return mender.ParseHeader(info, typ)
}

// Files returns the directory with the payload's files, if the client stored them
// because the module did not read the streams.
func (t *Tree) Files() (dir string, ok bool) {
	dir = filepath.Join(t.dir, "files")
	entries, err := os.ReadDir(dir)
	return dir, err == nil && len(entries) > 0
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	data, err := ReadRegular(path, 0, limit+1)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// ReadRegular reads the first bytes of a regular file, at most most. If another user may
// replace the file, use the flags syscall.O_NOFOLLOW|syscall.O_NONBLOCK.
func ReadRegular(path string, flags int, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// DriverFile is a file that mender-app puts into the trees it makes, so that the
// history can say who drove a deployment. The Mender client makes none.
const DriverFile = "driver"

// ForceFile is a file that mender-app puts into the trees it makes when a
// person insists on an installation that only a policy forbids.
const ForceFile = "force"

// Forced reports whether ForceFile is there.
func (t *Tree) Forced() bool {
	_, err := os.Lstat(filepath.Join(t.dir, ForceFile))
	return err == nil
}

// Reuse says whether a release keeps an operator's choices from earlier releases; nil:
// its policy decides.
type Reuse struct {
	Services  *bool `json:"services,omitempty"`
	Overrides *bool `json:"overrides,omitempty"`
}

// ReuseFile is a file that mender-app puts into the trees it makes when a person decides
// about reuse: a Reuse as JSON.
const ReuseFile = "reuse"

// Reuse returns the content of ReuseFile.
func (t *Tree) Reuse() (r Reuse, err error) {
	data, err := ReadRegular(filepath.Join(t.dir, ReuseFile), 0, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// AutomaticFile is a file that mender-app puts into the trees it makes when the
// device installs an artifact automatically: the name of the event, or nothing.
const AutomaticFile = "automatic"

// Automatic is the event in AutomaticFile, and whether the file is there.
func (t *Tree) Automatic() (event string, is bool, err error) {
	if _, err := os.Lstat(filepath.Join(t.dir, AutomaticFile)); err != nil {
		return "", false, nil
	}
	event, err = t.value(AutomaticFile)
	return event, true, err
}

// SignerFile is a file that mender-app puts into the trees it makes when it has
// verified the artifact's signature: the public key that made it, in PEM. The
// Mender client makes none.
const SignerFile = "signer"

// Signer is the content of SignerFile; "" if there is none.
func (t *Tree) Signer() (string, error) { return t.value(SignerFile) }

// Driver is the name in DriverFile; "" if there is none.
func (t *Tree) Driver() (string, error) { return t.value(DriverFile) }
