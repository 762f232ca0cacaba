package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/vcdiff"
	"github.com/mender-app/mender-app/delta/vcdiff/archive"
	"github.com/mender-app/mender-app/submodules"
)

// vcdiff decodes the shell reference's delta: an xdelta3 file between the
// `docker save` archives of the current and the new image. The current image is
// saved again as the base, so the engine must save it in the same form as the one
// that the delta was made with.
func (rc *receiver) vcdiff(r io.Reader) error {
	if rc.in.Current == "" {
		return submodules.Mark(errors.New("the delta does not say which image it starts from"), submodules.ErrBase)
	}
	base, size, err := rc.target.Save(rc.ctx, rc.in.Current)
	if err != nil {
		return baseError(err)
	}
	defer base.Close()
	// The target may be as large as the base and the new layers together.
	room, err := rc.room()
	if err != nil {
		return err
	}
	v, err := vcdiff.NewReader(rc.ctx, base, size, r, vcdiff.Options{Xdelta3: rc.in.Xdelta3, MaxTarget: size + min(room, NoRoomLimit-size)})
	if err == nil {
		defer v.Close()
		err = rc.archive(v)
	}
	if errors.Is(err, vcdiff.ErrChecksum) || errors.Is(err, vcdiff.ErrSource) {
		return submodules.Mark(fmt.Errorf("the delta does not fit what this engine saves of %s: %w", rc.in.Current, err), submodules.ErrBase)
	}
	return err
}

// baseError is the error for an image that a delta starts from, and that is not there.
func baseError(err error) error {
	if errors.Is(err, submodules.ErrNotFound) {
		return submodules.Mark(fmt.Errorf("the image the delta starts from: %v", err), submodules.ErrBase)
	}
	return err
}

// OtherImage is the error for a name that means another image than the wanted one.
func OtherImage(ref string, want, have image.Digest) error {
	return submodules.Mark(fmt.Errorf("%s should be %s, but on this device it is %s", ref, want, have), submodules.ErrNotFound)
}

// deepArchive decodes the shell reference's deep delta: an archive with xdelta3
// files in place of layers.
func (rc *receiver) deepArchive(r io.Reader) error {
	f, size, err := Spool(rc.in.TempDir, r)
	if err != nil {
		return err
	}
	defer f.Close()
	a, err := archive.Plan(f, size)
	if err != nil {
		return err
	}
	a.Options.Xdelta3 = rc.in.Xdelta3
	if err := rc.fits(a.Size()); err != nil {
		return err
	}
	var layers []image.Digest
	for _, sum := range a.Needs(false) {
		if d, err := digest.FromHex(sum); err == nil {
			layers = append(layers, d)
		}
	}
	old, err := rc.target.Old(rc.ctx, layers)
	if err != nil {
		return err
	}
	defer old.Close()
	blobs := oldBlobs{old: old, dir: rc.in.TempDir}
	if err := a.Check(rc.ctx, blobs, false); err != nil {
		return err
	}
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		// Layers that did not change are left out; archive knows what to do.
		err := a.WriteTar(rc.ctx, pw, blobs, func(m archive.Member) bool { return m.Kind != archive.Unchanged })
		_ = pw.CloseWithError(err)
		done <- err
	}()
	err = rc.archive(pr)
	_ = pr.Close()
	// rc.archive reports a delta that cannot be decoded as a broken archive.
	var secondary *vcdiff.SecondaryError
	if werr := <-done; errors.As(werr, &secondary) {
		return werr
	}
	return err
}

// oldBlobs opens old layers for random access, which xdelta3 needs: in place if
// the store allows that, else as an unlinked temporary copy.
type oldBlobs struct {
	old Old
	dir string
}

func (o oldBlobs) layer(ctx context.Context, sum string) (io.ReadCloser, int64, error) {
	d, err := digest.FromHex(sum)
	if err != nil {
		return nil, 0, err
	}
	r, size, err := o.old.Layer(ctx, d)
	if errors.Is(err, delta.ErrNoObject) {
		err = fmt.Errorf("layer %s: %w", d, fs.ErrNotExist)
	}
	return r, size, err
}

// StatBlob implements archive.Stater.
func (o oldBlobs) StatBlob(ctx context.Context, sum string) (int64, error) {
	r, size, err := o.layer(ctx, sum)
	if err != nil {
		return 0, err
	}
	return size, r.Close()
}

// OpenBlob implements archive.Old.
func (o oldBlobs) OpenBlob(ctx context.Context, sum string) (archive.Blob, error) {
	r, size, err := o.layer(ctx, sum)
	if err != nil {
		return nil, err
	}
	if f, ok := r.(delta.File); ok {
		return f, nil
	}
	defer r.Close()
	f, n, err := Spool(o.dir, r)
	if err != nil {
		return nil, err
	}
	if n != size {
		_ = f.Close()
		return nil, fmt.Errorf("layer sha256:%s has %d bytes, not %d: %w", sum, n, size, io.ErrUnexpectedEOF)
	}
	return osFile{f, size}, nil
}

// referenceError marks errors of a reference delta or its base.
func referenceError(err error) error {
	var secondary *vcdiff.SecondaryError
	switch {
	case errors.As(err, &secondary) && secondary.Err == nil:
		return submodules.Mark(fmt.Errorf("%w; only the xdelta3 program can read that: set XDELTA3_COMMAND if it may run on content that is not verified yet, or install a full artifact", err), submodules.ErrContent)
	case errors.Is(err, archive.ErrMissing), errors.Is(err, archive.ErrDamaged), errors.Is(err, vcdiff.ErrSource):
		return submodules.Mark(err, submodules.ErrBase)
	case errors.Is(err, archive.ErrInvalid), errors.Is(err, archive.ErrRecompressed), errors.Is(err, vcdiff.ErrCorrupt),
		errors.Is(err, vcdiff.ErrUnsupported), errors.Is(err, vcdiff.ErrTooLarge), errors.Is(err, vcdiff.ErrChecksum):
		return submodules.Mark(err, submodules.ErrContent)
	}
	return err
}
