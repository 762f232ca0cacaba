package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/filedelta"
	"github.com/mender-app/mender-app/modules/imagedelta"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// runFileDelta applies a delta, in a process of its own. Tests may replace it.
var runFileDelta = filedelta.Run

// runImageDelta applies the delta of an image, in a process of its own. Tests may
// replace it.
var runImageDelta = imagedelta.Run

// rebuildsHere reports whether a component is an image whose delta the sub-module cannot
// apply: then it is applied here.
func rebuildsHere(info submodules.Info, c artifact.Component) bool {
	return !c.IsFile() && c.Format == artifact.FormatDelta && !info.Has(submodules.FeatureDelta)
}

// largestSpooled is the size of the largest component that is put into a file for the
// sub-module.
func largestSpooled(info submodules.Info, list []artifact.Component) (largest int64) {
	seen := map[digest.Digest]bool{}
	for _, c := range list {
		if spools(info, seen[c.Digest]) || c.IsFile() || rebuildsHere(info, c) {
			largest = max(largest, spooledBytes(info, c))
		}
		seen[c.Digest] = true
	}
	return largest
}

// spooledBytes is what a component takes in temporary files, where it is put into
// files: a delta needs itself, what it builds on and what it makes. The metadata does
// not say how large an old image is; it is taken to be as large as the new one.
func spooledBytes(info submodules.Info, c artifact.Component) int64 {
	switch {
	case rebuildsHere(info, c):
		n := c.PayloadBytes
		for range len(c.Bases) + 1 {
			n += c.ConfigSize
			for _, l := range c.Layers {
				n += l.Size
			}
		}
		return n
	case !c.IsFile() || c.Format != artifact.FormatDelta:
		return c.PayloadBytes
	}
	return c.PayloadBytes + c.Bases[0].Size + c.Size
}

// makeImage applies the delta of an image: see imagedelta.Apply.
func makeImage(ctx context.Context, q imagedelta.Request) error {
	var err error
	if q.MaxFile, err = diskspace.Room(q.Temp, diskspace.Free); err != nil {
		return err
	}
	err = runImageDelta(ctx, q)
	switch {
	case errors.Is(err, submodules.ErrContent):
		return fmt.Errorf("%w: %w", artifact.ErrPayload, err)
	case errors.Is(err, submodules.ErrBase):
		return fmt.Errorf("%w: install the full artifact", err)
	}
	return err
}

// hasFile reports whether the application has a file that a delta builds on: in place, or
// as a copy. Of an adopted application the digests may not be known: then the name
// decides, and the file is compared before the delta is applied.
func hasFile(s *store.Store, app string, b artifact.Base) bool {
	a, err := s.App(app)
	if err != nil {
		return false
	}
	ids, err := a.Releases()
	if err != nil {
		return false
	}
	for _, id := range ids {
		_, copied := a.Saved(id, b.URL)
		r, err := a.Release(id)
		if err != nil || id != a.Current && !copied {
			continue
		}
		for _, c := range r.Components {
			if c.URL == b.URL && (c.Digest == b.Digest || c.Digest == "") {
				return true
			}
		}
	}
	return false
}

// deltaBase is what the delta of a component builds on, and the size of what it
// makes, -1 if that is not announced. Of an artifact of the shell reference the
// name of the base may end with its digest.
func deltaBase(a *store.App, m *artifact.Metadata, info artifact.ImageInfo, c store.Component) (base artifact.Base, size int64) {
	if n, _ := m.Component(c.URL, c.Digest); len(n.Bases) > 0 {
		return n.Bases[0], n.Size
	}
	base = artifact.Base{URL: info.URLCurrent, Digest: info.SumCurrent}
	if url, sum, ok := strings.Cut(info.URLCurrent, "@sha256:"); ok {
		base.URL = url
		if d, err := digest.FromHex(sum); err == nil {
			base.Digest = d
		}
	}
	if was, ok := componentBefore(a, base.URL); ok && !isFile(was) {
		base.Digest = "" // SAVE writes an archive, and the digest is the image's
	} else if ok && base.Digest == "" {
		base.Digest = was.Digest
	}
	return base, -1
}

// componentBefore is the component that the previous release has under a URL.
func componentBefore(a *store.App, url string) (store.Component, bool) {
	r, err := a.Release(a.Deployment.From)
	if a.Deployment.From == "" || err != nil {
		return store.Component{}, false // its damage was logged before
	}
	i := slices.IndexFunc(r.Components, func(c store.Component) bool { return c.URL == url })
	if i < 0 {
		return store.Component{}, false
	}
	return r.Components[i], true
}

// copyOf finds a release's copy of a file; "" if there is none.
func copyOf(a *store.App, base artifact.Base) (string, error) {
	ids, err := a.Releases()
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		path, ok := a.Saved(id, base.URL)
		if !ok {
			continue
		}
		r, err := a.Release(id)
		if err != nil {
			continue // its damage was logged before
		}
		for _, c := range r.Components {
			if c.URL == base.URL && (c.Digest == base.Digest || id == a.Deployment.From && (c.Digest == "" || base.Digest == "")) {
				return path, nil
			}
		}
	}
	return "", nil
}

// makeFile applies the delta at patch to the file at old and writes path. size is
// -1 if it is not announced: then the free space bounds it.
func makeFile(ctx context.Context, old string, is digest.Digest, patch, path string, size int64) (err error) {
	most := size
	if most < 0 {
		if most, err = diskspace.Room(filepath.Dir(path), diskspace.Free); err != nil {
			return err
		}
	}
	if is == "" {
		if is, err = sumOf(old); err != nil {
			return err
		}
	}
	q := filedelta.Request{Digest: is, Size: size, Max: most}
	if q.Old, err = openFile(old); err != nil {
		return err
	}
	defer q.Old.Close()
	if q.Delta, err = openFile(patch); err != nil {
		return err
	}
	defer q.Delta.Close()
	if q.New, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	defer q.New.Close()
	err = runFileDelta(ctx, q)
	if errors.Is(err, filedelta.ErrDelta) {
		return fmt.Errorf("%w: %w", artifact.ErrPayload, err)
	}
	return err
}
