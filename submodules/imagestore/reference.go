package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/vcdiff"
	"github.com/mender-app/mender-app/delta/vcdiff/archive"
	"github.com/mender-app/mender-app/submodules"
)

// vcdiff takes the shell reference's delta: xdelta3 between what `docker save`
// gave for the current image and for the new one. The current image has to be
// saved for it, in the same form: an engine that saves otherwise than the one
// the delta was made with has no base for it.
func (rc *receiver) vcdiff(r io.Reader) error {
	if rc.in.Current == "" {
		return submodules.Mark(errors.New("the delta does not say which image it starts from"), submodules.ErrBase)
	}
	base, size, err := rc.target.Save(rc.ctx, rc.in.Current)
	if errors.Is(err, submodules.ErrNotFound) {
		return submodules.Mark(fmt.Errorf("the image the delta starts from: %v", err), submodules.ErrBase)
	}
	if err != nil {
		return err
	}
	defer base.Close()
	v, err := vcdiff.NewReader(rc.ctx, base, size, r, vcdiff.Options{})
	if err == nil {
		defer v.Close()
		err = rc.archive(v)
	}
	if errors.Is(err, vcdiff.ErrChecksum) || errors.Is(err, vcdiff.ErrSource) {
		return submodules.Mark(fmt.Errorf("the delta does not fit what this engine saves of %s: %w", rc.in.Current, err), submodules.ErrBase)
	}
	return err
}

// deepArchive takes the shell reference's deep delta: an archive with xdelta3
// files in the places of layers.
func (rc *receiver) deepArchive(r io.Reader) error {
	f, err := os.CreateTemp(rc.in.TempDir, "delta-*.tar")
	if err != nil {
		return err
	}
	_ = os.Remove(f.Name())
	defer f.Close()
	size, err := io.Copy(f, r)
	if err != nil {
		return err
	}
	a, err := archive.Plan(f, size)
	if err != nil {
		return err
	}
	old, err := rc.target.Old(rc.ctx)
	if err != nil {
		return err
	}
	defer old.Close()
	blobs := &oldBlobs{old: old, dir: rc.in.TempDir, kept: map[string]blob{}}
	defer blobs.close()
	if err := a.Check(rc.ctx, blobs, false); err != nil {
		return err
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Layers that did not change are left out; archive knows what to do.
		_ = pw.CloseWithError(a.WriteTar(rc.ctx, pw, blobs, func(m archive.Member) bool { return m.Kind != archive.Unchanged }))
	}()
	err = rc.archive(pr)
	_ = pr.Close()
	<-done
	return err
}

// oldBlobs gives old layers as files, for xdelta3's reads go anywhere. Each is
// written once, into a file without a name, and kept until close.
type oldBlobs struct {
	old  Old
	dir  string
	kept map[string]blob
}

func (o *oldBlobs) close() {
	for _, b := range o.kept {
		_ = b.File.Close()
	}
}

func (o *oldBlobs) OpenBlob(ctx context.Context, sum string) (archive.Blob, error) {
	if b, ok := o.kept[sum]; ok {
		return b, nil
	}
	d, err := image.FromHex(sum)
	if err != nil {
		return nil, err
	}
	r, size, err := o.old.Layer(ctx, d)
	if errors.Is(err, delta.ErrNoObject) {
		return nil, fmt.Errorf("layer %s: %w", d, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := os.CreateTemp(o.dir, "layer-*.tar")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	if _, err := io.Copy(f, r); err != nil {
		_ = f.Close()
		return nil, err
	}
	o.kept[sum] = blob{f, size}
	return o.kept[sum], nil
}

type blob struct {
	*os.File
	size int64
}

func (b blob) Size() int64 { return b.size }

// Close leaves the file open for the next time.
func (b blob) Close() error { return nil }

// referenceError marks what is wrong with a reference delta, or its base.
func referenceError(err error) error {
	switch {
	case errors.Is(err, archive.ErrMissing), errors.Is(err, archive.ErrDamaged), errors.Is(err, vcdiff.ErrSource):
		return submodules.Mark(err, submodules.ErrBase)
	case errors.Is(err, archive.ErrInvalid), errors.Is(err, archive.ErrRecompressed), errors.Is(err, vcdiff.ErrCorrupt),
		errors.Is(err, vcdiff.ErrUnsupported), errors.Is(err, vcdiff.ErrTooLarge), errors.Is(err, vcdiff.ErrChecksum):
		return submodules.Mark(err, submodules.ErrContent)
	}
	return err
}
