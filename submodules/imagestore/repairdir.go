package imagestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// RepairDir is the directory of a repair. It holds the repair's plan, and copies
// of everything that is needed to load again what the repair removes. It outlives
// the call.
type RepairDir string

const (
	planFile = "plan.json"
	layerDir = "layers" // and configs, by their digests
	spoolGap = 16 << 20 // bytes that stay free beside the spool
)

// Path returns the path of a kept layer or config.
func (s RepairDir) Path(d image.Digest) string { return filepath.Join(string(s), layerDir, d.Hex()) }

// readPlan reads the plan into p; false if there is none.
func (s RepairDir) readPlan(p any) (bool, error) {
	data, err := os.ReadFile(filepath.Join(string(s), planFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, p); err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(string(s), planFile), err)
	}
	return true, nil
}

// ResumeOrPlan returns the plan of a repair: the one that an earlier call made
// durable in the directory, or else, unless finish is set, a new one. It returns
// nil if there is nothing to repair, and then removes what was kept.
func ResumeOrPlan[P any](s RepairDir, finish bool, plan func() (*P, error)) (*P, error) {
	p := new(P)
	begun, err := s.readPlan(p)
	if err != nil {
		return nil, err
	}
	if begun {
		return p, nil
	}
	if err := s.Clear(); err != nil || finish {
		return nil, err
	}
	p, err = plan()
	if err != nil || p == nil {
		return nil, errors.Join(err, s.Clear())
	}
	return p, nil
}

// WritePlan makes what was kept durable, and then the plan.
func (s RepairDir) WritePlan(p any) error {
	if err := durable.SyncTree(filepath.Join(string(s), layerDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(string(s), planFile), data, 0o600)
}

// Clear removes what was kept, but not the plan.
func (s RepairDir) Clear() error { return durable.RemoveAll(filepath.Join(string(s), layerDir)) }

// Make creates the directory for kept layers. It fails with submodules.ErrSpace
// if need bytes do not fit.
func (s RepairDir) Make(need int64) error {
	free, err := FreeBytes(string(s))
	if err != nil {
		return err
	}
	if need+spoolGap > free {
		return submodules.Mark(fmt.Errorf("the repair needs %d bytes on the file system of %s and %d are free: free some and try again", need+spoolGap, s, free), submodules.ErrSpace)
	}
	return os.MkdirAll(filepath.Join(string(s), layerDir), 0o700)
}

// Has reports whether a layer or a config is kept.
func (s RepairDir) Has(d image.Digest) bool {
	_, err := os.Stat(s.Path(d))
	return err == nil
}

// KeepConfig keeps a config.
func (s RepairDir) KeepConfig(d image.Digest, config []byte) error {
	return os.WriteFile(s.Path(d), config, 0o600)
}

// KeepFirst keeps the first copy that matches its diffID, and returns false if
// none does. An error comes from the disk or the context.
func (s RepairDir) KeepFirst(ctx context.Context, d image.Digest, copies ...*image.Layer) (bool, error) {
	for _, l := range copies {
		err := s.keep(ctx, d, l)
		if err == nil {
			return true, nil
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || ctx.Err() != nil {
			return false, err
		}
	}
	return false, nil
}

func (s RepairDir) keep(ctx context.Context, d image.Digest, l *image.Layer) error {
	r, err := l.Verified()
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(s.Path(d), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, metered.Reader(ctx, r, nil))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Layer returns a kept layer; false if it is not kept.
func (s RepairDir) Layer(d image.Digest) (image.Layer, bool) {
	fi, err := os.Stat(s.Path(d))
	if err != nil {
		return image.Layer{}, false
	}
	return image.Layer{DiffID: d, Size: fi.Size(), Open: func() (io.ReadCloser, error) { return os.Open(s.Path(d)) }}, true
}

// Source holds the image archives that a repair was given. The zero value has
// none.
type Source struct {
	dir      string
	archives []*image.Archive
}

// OpenSource opens the archives in dir, "" for none.
func OpenSource(dir string) (*Source, error) {
	s := &Source{dir: dir}
	if dir == "" {
		return s, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		a, err := image.OpenArchive(filepath.Join(dir, entry.Name()))
		if err != nil {
			_ = s.Close()
			return nil, submodules.Mark(fmt.Errorf("source: %w", err), submodules.ErrContent)
		}
		s.archives = append(s.archives, a)
	}
	return s, nil
}

// Close implements io.Closer.
func (s *Source) Close() error {
	var errs []error
	for _, a := range s.archives {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// Image is the image with that config, or one that a manifest of that digest
// leads to; nil if there is none.
func (s *Source) Image(config image.Digest) *image.Image {
	for _, a := range s.archives {
		for _, img := range a.Images() {
			if img.ConfigDigest == config || slices.Contains(img.Manifests, config) {
				return img
			}
		}
	}
	return nil
}

// Layers returns the copies of a layer.
func (s *Source) Layers(d image.Digest) (list []*image.Layer) {
	for _, a := range s.archives {
		for _, img := range a.Images() {
			for i := range img.Layers {
				if l := &img.Layers[i]; l.DiffID == d && l.Open != nil {
					list = append(list, l)
				}
			}
		}
	}
	return list
}

// Lost returns the error for an image that cannot be repaired, with what to do
// about it. name is the name of the image for people.
func (s *Source) Lost(app, name, what string) error {
	next := "get an artifact that carries it whole and run: mender-app verify --repair --from FILE.mender " + app
	if s.dir != "" {
		next = "the artifact that was given does not carry it whole; " + next
	}
	return submodules.Mark(fmt.Errorf("%s cannot be repaired with what is on this device, and nothing was changed: %s; %s", name, what, next), submodules.ErrContent)
}
