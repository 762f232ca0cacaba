package containerd

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/platforms"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// old is the content of the images the store has: configs, and layers whose
// blobs are there. A layer that is stored uncompressed is read in place; a
// compressed one (it was pulled) is unpacked, when it is first asked for, to a
// file that has no name. A layer whose blob was discarded after unpacking is
// not in it: its snapshot has the files, but not the tar's headers.
type old struct {
	s      *Store
	layers map[delta.Digest]ocispec.Descriptor
	read   *delta.Store
	added  map[delta.Digest]bool
	open   []io.Closer
}

// Old implements imagestore.Target. Close gives back what it holds.
func (s *Store) Old(ctx context.Context) (imagestore.Old, error) {
	list, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	o := &old{s: s, layers: map[delta.Digest]ocispec.Descriptor{}, read: delta.NewStore(), added: map[delta.Digest]bool{}}
	for _, st := range list {
		for i, d := range st.diffIDs {
			desc := st.layers[i]
			ok, err := s.holds(ctx, desc)
			if err != nil {
				return nil, err
			}
			// A blob that is not compressed is the better one.
			if have, is := o.layers[delta.Digest(d)]; ok && (!is || compressed(have)) {
				o.layers[delta.Digest(d)] = desc
			}
		}
	}
	return o, nil
}

// Close implements io.Closer.
func (o *old) Close() error {
	var errs []error
	for _, c := range o.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// OpenFile implements delta.Old.
func (o *old) OpenFile(ctx context.Context, in delta.Digest, name string) (delta.File, error) {
	if err := o.add(ctx, in, name == ""); err != nil {
		return nil, err
	}
	return o.read.OpenFile(ctx, in, name)
}

// Headers implements delta.Old.
func (o *old) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	if err := o.add(ctx, in, false); err != nil {
		return nil, err
	}
	return o.read.Headers(ctx, in)
}

// Layer implements imagestore.Old.
func (o *old) Layer(ctx context.Context, d image.Digest) (io.ReadCloser, int64, error) {
	in := delta.Digest(d)
	if err := o.add(ctx, in, false); err != nil {
		return nil, 0, err
	}
	f, err := o.read.OpenFile(ctx, in, "")
	if err != nil {
		return nil, 0, err
	}
	return &closers{Reader: io.NewSectionReader(f, 0, f.Size()), all: []func() error{f.Close}}, f.Size(), nil
}

// Save implements imagestore.Target: it gives what `ctr images export` does,
// which is what the shell reference's deltas of images on Kubernetes start
// from.
func (s *Store) Save(ctx context.Context, ref string) (*os.File, int64, error) {
	st, err := s.named(ctx, ref, imagestore.Identity{})
	if err != nil {
		return nil, 0, err
	}
	f, err := os.CreateTemp(s.tempDir, "image-")
	if err != nil {
		return nil, 0, err
	}
	if err = os.Remove(f.Name()); err == nil {
		err = archive.Export(ctx, s.content(), f, archive.WithPlatform(platforms.DefaultStrict()), archive.WithManifest(st.target, Canonical(ref)))
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("export %s: %w", ref, err), f.Close())
	}
	return f, size, nil
}

// add makes an object readable, once.
func (o *old) add(ctx context.Context, in delta.Digest, blob bool) error {
	if o.added[in] {
		return nil
	}
	desc, isLayer := o.layers[in]
	kind := delta.Tar
	switch {
	case isLayer && compressed(desc):
		f, err := o.unpack(ctx, desc)
		if err != nil {
			return fmt.Errorf("layer %s: %w", in, err)
		}
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		o.added[in] = true
		return o.read.Add(in, kind, f, fi.Size())
	case !isLayer && !blob:
		return fmt.Errorf("layer %s: %w", in, delta.ErrNoObject)
	case !isLayer:
		kind = delta.Blob
		info, err := o.s.content().Info(ctx, digest.Digest(in))
		if ignoreMissing(err) == nil && err != nil {
			return fmt.Errorf("%s: %w", in, delta.ErrNoObject)
		}
		if err != nil {
			return err
		}
		desc = ocispec.Descriptor{Digest: info.Digest, Size: info.Size}
	}
	ra, err := o.s.content().ReaderAt(ctx, desc)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	o.open = append(o.open, ra)
	o.added[in] = true
	return o.read.Add(in, kind, ra, ra.Size())
}

func (o *old) unpack(ctx context.Context, desc ocispec.Descriptor) (*os.File, error) {
	r, err := o.s.open(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := os.CreateTemp(o.s.tempDir, "layer-")
	if err != nil {
		return nil, err
	}
	o.open = append(o.open, f)
	if err = os.Remove(f.Name()); err == nil {
		_, err = io.Copy(f, r)
	}
	return f, err
}

func compressed(desc ocispec.Descriptor) bool {
	return strings.HasSuffix(desc.MediaType, "gzip") || strings.HasSuffix(desc.MediaType, "zstd")
}

// open opens a layer's blob from its start, uncompressed.
func (s *Store) open(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	ra, err := s.content().ReaderAt(ctx, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(content.NewReader(ra), 256<<10)
	c := &closers{Reader: r, all: []func() error{ra.Close}}
	switch {
	case strings.HasSuffix(desc.MediaType, "gzip"):
		zr, err := gzip.NewReader(r)
		if err != nil {
			return nil, errors.Join(err, ra.Close())
		}
		c.Reader = zr
	case strings.HasSuffix(desc.MediaType, "zstd"):
		zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, errors.Join(err, ra.Close())
		}
		c.Reader = zr
		c.all = append(c.all, func() error { zr.Close(); return nil })
	}
	return c, nil
}

type closers struct {
	io.Reader
	all []func() error
}

func (c *closers) Close() error {
	var errs []error
	for _, f := range c.all {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// archive makes an image of what the store has, with its layers' content.
func (s *Store) archive(ctx context.Context, st *stored, tags ...string) (*image.Image, error) {
	config, err := content.ReadBlob(ctx, s.content(), ocispec.Descriptor{Digest: st.desc.Digest, Size: st.desc.Size})
	if err != nil {
		return nil, fmt.Errorf("config %s: %w", st.config, err)
	}
	blobs, err := s.blobs(ctx, st.diffIDs)
	if err != nil {
		return nil, err
	}
	layers := make([]image.Layer, len(st.diffIDs))
	for i, d := range st.diffIDs {
		layers[i] = image.Layer{DiffID: d, Size: -1}
		desc, ok := blobs[d]
		if !ok {
			continue
		}
		if !compressed(desc) {
			layers[i].Size = desc.Size
		}
		layers[i].Open = func() (io.ReadCloser, error) { return s.open(ctx, desc) }
	}
	return image.New(config, layers, tags...)
}
