// Package staging keeps artifacts on the device until they are installed, in a
// directory of the store. A listed artifact was once read to its end: its checksums
// were right, its metadata and policy were readable, and the caller accepted its
// header. An installation reads and checks it again.
//
// An artifact is one file and a record beside it. The file is durable before the record
// is written, and the record is removed before the file, so that a crash at any instant
// leaves an artifact that is whole or one that is not listed. The package must not know
// how an artifact is installed.
package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// Errors a caller may branch on.
var (
	// ErrNone: no such artifact is staged.
	ErrNone = errors.New("not staged")
	// ErrSpace: the artifact does not fit beside the space that must stay free.
	ErrSpace = errors.New("not enough space to stage it")
	// ErrBusy: another process stages.
	ErrBusy = errors.New("another mender-app command stages an artifact; try again when it has ended")
	// ErrRefused: the artifact cannot be staged.
	ErrRefused = errors.New("refused")
)

// Names in the store. See store/FORMAT.md.
const (
	dir        = "staged"
	dataSuffix = ".mender"
	infoSuffix = ".json"
	format     = 1
	maxRecord  = 64 << 10
)

// Area is where artifacts are staged.
type Area struct {
	Store *store.Store
	// Limit is how many bytes all staged artifacts may take together, including their
	// loaded images. Margin is how many bytes must stay free on the file system.
	Limit, Margin int64
	// Loaded returns how many bytes of an artifact are loaded into an engine; nil: none.
	Loaded func(artifact digest.Digest) int64
	// Free returns how many bytes are free on the file system of a directory.
	Free func(dir string) (free int64, dev uint64, err error)
}

// Record describes a staged artifact. It is stored beside the artifact's file.
type Record struct {
	Application  string        `json:"application"`
	Version      string        `json:"application_version,omitempty"`
	ArtifactName string        `json:"artifact_name"`
	Orchestrator string        `json:"orchestrator"`
	Size         int64         `json:"size"`
	Digest       digest.Digest `json:"digest"`
	Staged       time.Time     `json:"staged"`
}

// recordFile is the file of a record.
type recordFile struct {
	Format int `json:"format"`
	Record
}

// Artifact is a staged artifact.
type Artifact struct {
	Record
	// Path is the artifact's file.
	Path string
	// Problem says what is wrong with it; "" for nothing.
	Problem string
}

// Name names the artifact for a person: its name, or for a damaged one the beginning
// of its digest.
func (a *Artifact) Name() string {
	if a.ArtifactName == "" {
		return a.Digest.Hex()[:12]
	}
	return a.ArtifactName
}

func (a *Area) dir() string { return a.Store.Meta(dir) }

func (a *Area) loaded(d digest.Digest) int64 {
	if a.Loaded == nil || d == "" {
		return 0
	}
	return a.Loaded(d)
}

func (a *Area) path(d digest.Digest, suffix string) string {
	return filepath.Join(a.dir(), d.Hex()+suffix)
}

// List lists the staged artifacts by application, the newest version of each first.
// It needs no lock. A damaged artifact is listed with its problem.
func (a *Area) List() (list []Artifact, err error) {
	entries, err := os.ReadDir(a.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		hex, isRecord := strings.CutSuffix(e.Name(), infoSuffix)
		d, err := digest.FromHex(hex)
		if !isRecord || err != nil {
			continue
		}
		if one := a.read(d); one != nil {
			list = append(list, *one)
		}
	}
	// A generic sort would cost the programs of the device some KiB.
	sort.SliceStable(list, func(i, j int) bool { return list[i].Application < list[j].Application })
	for i := range list { // Compare is not a total order: put the newest one first, then the next
		for j := i + 1; j < len(list) && list[j].Application == list[i].Application; j++ {
			if newer(list[j], list[i]) {
				list[i], list[j] = list[j], list[i]
			}
		}
	}
	return list, nil
}

// newer reports whether x has a newer version than y; if the versions cannot be
// compared, whether x was staged later.
func newer(x, y Artifact) bool {
	if order, err := version.Compare(x.Version, y.Version); err == nil && order != 0 {
		return order > 0
	}
	return x.Staged.After(y.Staged)
}

// read reads the record of one artifact; nil if it has just been removed.
func (a *Area) read(d digest.Digest) *Artifact {
	one := &Artifact{Path: a.path(d, dataSuffix)}
	path := a.path(d, infoSuffix)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil && st.Size() <= maxRecord {
		data, err = os.ReadFile(path)
	}
	if err == nil {
		file := recordFile{}
		err = json.Unmarshal(data, &file)
		one.Record = file.Record
	}
	switch file, missing := os.Lstat(one.Path); {
	case err != nil || one.Digest != d || one.Application == "":
		one.Problem = "its record is damaged"
	case missing != nil:
		one.Problem = "its file is missing"
	case !file.Mode().IsRegular() || file.Size() != one.Size:
		one.Problem = fmt.Sprintf("its file has %d bytes instead of %d", file.Size(), one.Size)
	}
	if one.Problem != "" {
		one.Digest = d
	}
	return one
}

// Find returns the newest staged artifact of an application, or the one whose version or
// artifact name is version.
func Find(list []Artifact, application, version string) (*Artifact, error) {
	problem := ""
	for i, a := range list {
		if a.Application != application || version != "" && a.Version != version && a.ArtifactName != version {
			continue
		}
		if a.Problem == "" {
			return &list[i], nil
		}
		problem = fmt.Sprintf(": %s is damaged: %s", a.ArtifactName, a.Problem)
	}
	return nil, fmt.Errorf("%s is %w%s: see mender-app stage list", strings.TrimSpace(application+" "+version), ErrNone, problem)
}

// Named returns the artifacts that a person means: those with this name, or the one
// whose digest begins with it.
func Named(list []Artifact, name string) (found []Artifact) {
	const shortest = 8
	for _, a := range list {
		if a.ArtifactName == name || len(name) >= shortest && strings.HasPrefix(a.Digest.Hex(), strings.TrimPrefix(name, "sha256:")) {
			found = append(found, a)
		}
	}
	return found
}

// Open opens a staged artifact and reads its header. It verifies the header's checksum
// and, if o has keys, the signature.
func (a *Artifact) Open(o mender.ReadOptions) (*os.File, *mender.Reader, error) {
	f, err := os.Open(a.Path)
	if err != nil {
		return nil, nil, err
	}
	r, err := mender.NewReader(f, o)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, r, nil
}

// ReadMetadata reads the metadata and the policy of an artifact; the policy is nil if it
// has none.
func ReadMetadata(h *mender.Header) (*artifact.Metadata, *policy.Policy, error) {
	meta, _, err := artifact.ParseMetadata(h.MetaData)
	if err != nil {
		return nil, nil, err
	}
	if meta.Policy == nil {
		return meta, nil, nil
	}
	p, err := policy.ParseJSON(meta.Policy, meta.ApplicationName, meta.ApplicationVersion)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return meta, p, nil
}
