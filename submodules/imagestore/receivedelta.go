package imagestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/submodules"
)

// Old is the content of older images in a store. It is not verified: the reader has
// to verify it.
type Old interface {
	delta.Old
	// Layer opens a layer's whole tar and returns its size. The error for a missing
	// layer is delta.ErrNoObject. If the tar can be read in any order, it is a
	// delta.File.
	Layer(ctx context.Context, diffID image.Digest) (tar io.ReadCloser, size int64, err error)
	io.Closer
}

// delta rebuilds an image from a mender-app delta and the old content. It returns
// errPresent if the engine has the image already.
func (rc *receiver) delta(r *bufio.Reader) error {
	d, more, err := rc.openDelta(r)
	if err != nil {
		return err
	}
	defer more.close()
	objects := d.Header().Objects
	sizes, err := rc.identify(d.Header(), more.size())
	if err != nil {
		return err
	}
	if has, err := rc.target.Has(rc.ctx, rc.id); err != nil {
		return err
	} else if has {
		return errPresent
	}
	present, err := rc.target.Present(rc.ctx, rc.id.DiffIDs)
	if err != nil {
		return err
	}
	if err := rc.fitsAll(rc.id.DiffIDs, sizes, present); err != nil {
		return err
	}
	layers := slices.DeleteFunc(needed(d.Header(), present), func(l image.Digest) bool { return more.has(l) })
	old, err := rc.target.Old(rc.ctx, layers)
	if err != nil {
		return err
	}
	defer old.Close()

	a := archived{id: rc.id, names: make([]string, len(rc.id.DiffIDs)), sizes: sizes, present: present}
	if objects[0].Encoding == delta.Omitted {
		if a.config, err = readConfig(rc.ctx, old, rc.id.Config); err != nil {
			return submodules.Mark(err, submodules.ErrBase)
		}
		if err := rc.checkConfig(a.config); err != nil {
			return err
		}
	}
	if err := rc.apply(d, more.with(old), &a); err != nil {
		return err
	}
	if err := rc.copyOmitted(old, &a); err != nil {
		return err
	}
	return rc.writer().finish(a, rc.tags(rc.id.Config))
}

// openDelta opens the delta of an image. more is the content that comes before it, for all
// deltas of the image; nil if there is none.
func (rc *receiver) openDelta(r *bufio.Reader) (d *decoder.Decoder, more *sharedContent, err error) {
	if d, err = decoder.New(r); err != nil || d.Header().Image != delta.SharedContent {
		return d, nil, err
	}
	if rc.in.Want.Config != "" { // a present image does not need the shared content
		rc.id = rc.in.Want
		if has, err := rc.target.Has(rc.ctx, rc.id); err != nil {
			return nil, nil, err
		} else if has {
			return nil, nil, errPresent
		}
	}
	if more, err = rc.shared(d); err != nil {
		return nil, nil, err
	}
	if d, err = decoder.New(r); err != nil { // r is buffered: the second delta starts where the first ended
		more.close()
		return nil, nil, err
	}
	return d, more, nil
}

// identify sets rc.id to the image that a delta makes, compares it with what is announced,
// and returns the sizes of its layers. more is the size of the shared content.
func (rc *receiver) identify(h delta.Header, more int64) (sizes []int64, err error) {
	objects := h.Objects
	if len(objects) == 0 || objects[0].Kind != delta.Blob || objects[0].Size > image.MaxConfig {
		return nil, fmt.Errorf("%w: it is not of an image: a config must come first", delta.ErrFormat)
	}
	id := Identity{Config: objects[0].Digest, DiffIDs: make([]image.Digest, 0, len(objects)-1)}
	for _, o := range objects[1:] {
		if o.Kind != delta.Tar || o.Size < 0 {
			return nil, fmt.Errorf("%w: it is not of an image: object %d is no layer", delta.ErrFormat, o.Index)
		}
		id.DiffIDs = append(id.DiffIDs, o.Digest)
		sizes = append(sizes, o.Size)
	}
	// The platform is in the config, which is rebuilt first.
	if rc.in.Want.Config != "" && rc.in.Want.Config != id.Config {
		return nil, fmt.Errorf("the delta makes the image with config %s, and %s is announced: %w", id.Config, rc.in.Want.Config, image.ErrMismatch)
	}
	if err := rc.announced.checkDelta(h); err != nil {
		return nil, err
	}
	if err := rc.announced.checkTemp(h, more); err != nil {
		return nil, err
	}
	if rc.in.Want.DiffIDs != nil && !slices.Equal(rc.in.Want.DiffIDs, id.DiffIDs) {
		return nil, fmt.Errorf("the delta of image %s: its layers are not those announced: %w", id.Config, image.ErrMismatch)
	}
	rc.id = id
	return sizes, nil
}

// apply decodes the config and the layers that the engine lacks into the archive.
func (rc *receiver) apply(d *decoder.Decoder, old delta.Old, a *archived) error {
	last := lastNeeded(d.Header().Objects, a.present)
	err := d.Apply(rc.ctx, old, rc.in.TempDir, func(o delta.ObjectInfo) (delta.Sink, error) {
		if o.Index > last {
			return nil, errEnough
		}
		if o.Index == 0 {
			return &configSink{rc: rc, into: &a.config}, nil
		}
		dig := o.Digest
		if _, ok := a.present[dig]; ok || rc.writer().has(blobName(dig)) {
			return discard{}, nil
		}
		a.names[o.Index-1] = blobName(dig)
		if err := rc.writer().header(blobName(dig), o.Size); err != nil {
			return nil, err
		}
		g, err := rc.gauge(rc.writer().tw, dig)
		return &layerSink{rc: rc, gauge: g}, err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// copyOmitted copies the layers that the delta omits, and that the engine has only at
// another place in a chain of layers, where it cannot use them.
func (rc *receiver) copyOmitted(old Old, a *archived) error {
	for i, dig := range rc.id.DiffIDs {
		if _, ok := a.present[dig]; ok {
			continue
		}
		if !rc.writer().has(blobName(dig)) {
			if _, err := rc.copyLayer(old, dig); err != nil {
				return submodules.Mark(err, submodules.ErrBase)
			}
		}
		a.names[i] = blobName(dig)
	}
	return nil
}

// errEnough ends the decoding of a delta when all other layers are present.
var errEnough = errors.New("the rest is present already")

// lastNeeded is the index of the last object that the delta carries and the
// target lacks. The objects after it need not be decoded. The config is always needed.
func lastNeeded(objects []delta.ObjectInfo, present map[image.Digest]image.Descriptor) (last int) {
	for i, o := range objects {
		if _, ok := present[o.Digest]; !ok && o.Encoding != delta.Omitted {
			last = i
		}
	}
	return last
}

// fitsAll checks that there is room for the layers that the target lacks.
func (rc *receiver) fitsAll(diffIDs []image.Digest, sizes []int64, present map[image.Digest]image.Descriptor) error {
	var all int64
	for i, d := range diffIDs {
		if _, ok := present[d]; !ok {
			all += min(sizes[i], math.MaxInt64-all)
		}
	}
	return rc.fits(all)
}

// needed returns the layers that a delta reads, and those that it leaves out and the
// target lacks.
func needed(h delta.Header, present map[image.Digest]image.Descriptor) (layers []image.Digest) {
	for _, b := range h.Bases {
		if b.Kind == delta.Tar {
			layers = append(layers, b.Digest)
		}
	}
	for _, o := range h.Objects {
		if _, ok := present[o.Digest]; !ok && o.Kind == delta.Tar && o.Encoding == delta.Omitted {
			layers = append(layers, o.Digest)
		}
	}
	return layers
}

// copyLayer gives the engine a layer from the old content, and verifies it.
func (rc *receiver) copyLayer(old Old, d image.Digest) (size int64, err error) {
	tar, size, err := old.Layer(rc.ctx, d)
	if errors.Is(err, delta.ErrNoObject) {
		return 0, fmt.Errorf("layer %s is neither in the content nor in the engine: %w", d, image.ErrMissing)
	}
	if err != nil {
		return 0, err
	}
	l := image.Layer{DiffID: d, Size: size, Open: func() (io.ReadCloser, error) { return tar, nil }}
	v, err := l.Verified()
	if err != nil {
		return 0, err
	}
	err = rc.layer(blobName(d), d, size, v)
	if cerr := v.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, fmt.Errorf("layer %s: %w", d, err)
	}
	return size, nil
}

// checkConfig compares a rebuilt config with the delta and with the wanted identity.
func (rc *receiver) checkConfig(config []byte) error {
	c, err := image.ParseConfig(config)
	if err != nil {
		return err
	}
	if !slices.Equal(c.RootFS.DiffIDs, rc.id.DiffIDs) {
		return fmt.Errorf("the delta's layers are not those of its config: %w", image.ErrMismatch)
	}
	if err := rc.accept(digest.Of(config), rc.id.DiffIDs, c.Platform()); !errors.Is(err, errPresent) {
		return err
	}
	return nil
}

// configSink receives the config, and checks it before any layer is made.
type configSink struct {
	rc   *receiver
	buf  []byte
	into *[]byte
}

func (s *configSink) Write(p []byte) (int, error) {
	if len(s.buf)+len(p) > image.MaxConfig {
		return 0, fmt.Errorf("%w: config of more than %d bytes", image.ErrTooLarge, image.MaxConfig)
	}
	s.buf = append(s.buf, p...)
	return len(p), nil
}

func (s *configSink) Commit() error {
	*s.into = s.buf
	return s.rc.checkConfig(s.buf)
}

func (s *configSink) Abort(error) {}

// layerSink writes a layer into the archive. If it is aborted, so is the whole
// archive.
type layerSink struct {
	rc *receiver
	*gauge
}

func (s *layerSink) Commit() error {
	err := s.Close()
	s.rc.taken += s.size
	return err
}

func (s *layerSink) Abort(error) { _ = s.Close() }

// discard drops a layer that is present already.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Commit() error               { return nil }
func (discard) Abort(error)                 {}
