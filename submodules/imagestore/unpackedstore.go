package imagestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// LayerParts tells where a store of containerd's kind keeps a layer: the blob that
// it was received as, and the directory that it was unpacked to.
type LayerParts struct {
	// Blob opens the layer's tar as it is stored: plain, gzip or zstd. It is
	// nil where the blob was discarded after unpacking.
	Blob func(context.Context) (delta.File, error)
	// Dir opens the directory with the layer's files. It may also have the files
	// of the layers below. Dir is nil if the directory cannot be reached.
	Dir func(context.Context) (*os.Root, error)
}

// UnpackedStore gives access to the layers and configs of such a store.
type UnpackedStore struct {
	// Layer finds a layer. The error for a missing layer is delta.ErrNoObject.
	Layer func(ctx context.Context, diffID image.Digest) (LayerParts, error)
	// Config opens an image's config. The error for a missing config is
	// delta.ErrNoObject.
	Config func(ctx context.Context, digest image.Digest) (delta.File, error)
	// TempDir is for unlinked copies of compressed layers, which are needed when a
	// file is not found in the unpacked directory.
	TempDir string
	// Log writes a line to the log. Must be set.
	Log func(format string, args ...any)
}

// Old opens the content. Files are read from the unpacked directory; headers and
// whole tars are read from the blob and decompressed on the way. Nothing is
// written, and memory does not depend on the layer's size. Only a file that cannot be
// opened at its path is read from a copy of the blob.
func (p UnpackedStore) Old() Old {
	return &unpackedOld{from: p, layers: map[delta.Digest]*unpackedLayer{}}
}

type unpackedOld struct {
	from   UnpackedStore
	layers map[delta.Digest]*unpackedLayer
}

type unpackedLayer struct {
	LayerParts
	dir   *os.Root
	blob  *tarstore.Store // an index of the blob's files; nil until a file is read from it
	size  int64           // of the tar, -1 before it is known
	close []io.Closer
}

// Close implements io.Closer.
func (p *unpackedOld) Close() error {
	var errs []error
	for _, l := range p.layers {
		for _, c := range l.close {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

func (p *unpackedOld) layer(ctx context.Context, in delta.Digest) (*unpackedLayer, error) {
	if l, ok := p.layers[in]; ok {
		return l, nil
	}
	parts, err := p.from.Layer(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", in, err)
	}
	l := &unpackedLayer{LayerParts: parts, size: -1}
	if l.Dir != nil {
		if l.dir, err = l.Dir(ctx); err != nil {
			p.from.Log("layer %s cannot be read where it is unpacked: %v", in, err)
		}
	}
	if l.dir == nil && l.Blob == nil {
		return nil, fmt.Errorf("layer %s: %w: its content was discarded after it was unpacked, and the files are out of reach", in, delta.ErrNoObject)
	}
	if l.dir != nil {
		l.close = append(l.close, l.dir)
	}
	p.layers[in] = l
	return l, nil
}

// OpenFile implements delta.Old.
func (p *unpackedOld) OpenFile(ctx context.Context, in delta.Digest, name string) (delta.File, error) {
	if name == "" {
		return p.from.Config(ctx, in)
	}
	l, err := p.layer(ctx, in)
	if err != nil {
		return nil, err
	}
	if l.dir != nil {
		f, err := OpenWithin(l.dir, name)
		if err == nil {
			return NewFile(f)
		}
		if l.Blob == nil {
			return nil, err
		}
	}
	if l.blob == nil {
		if err := p.index(ctx, in, l); err != nil {
			return nil, fmt.Errorf("layer %s: %w", in, err)
		}
	}
	return l.blob.OpenFile(ctx, in, name)
}

// index makes the blob's files readable: in place, if the blob is not compressed.
func (p *unpackedOld) index(ctx context.Context, in delta.Digest, l *unpackedLayer) error {
	f, err := l.Blob(ctx)
	if err != nil {
		return err
	}
	l.close = append(l.close, f)
	var at io.ReaderAt = f
	size := f.Size()
	plain, err := isPlain(f)
	if err != nil {
		return err
	}
	if !plain {
		tar, err := p.tar(ctx, l)
		if err != nil {
			return err
		}
		defer tar.Close()
		spool, n, err := Spool(p.from.TempDir, tar)
		if err != nil {
			return err
		}
		p.from.Log("layer %s is unpacked to a temporary file of %d bytes", in, n)
		l.close = append(l.close, spool)
		at, size = spool, n
	}
	s := tarstore.New()
	if err := s.Add(in, delta.Tar, at, size); err != nil {
		return err
	}
	l.blob = s
	return nil
}

// Headers implements delta.Old.
func (p *unpackedOld) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	l, err := p.layer(ctx, in)
	if err != nil {
		return nil, err
	}
	tar, err := p.tar(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", in, err)
	}
	return tarstore.NewHeaders(tar), nil
}

// Layer implements Old. A layer that is not compressed is a delta.File too. A
// compressed layer is read once more for its size.
func (p *unpackedOld) Layer(ctx context.Context, d image.Digest) (io.ReadCloser, int64, error) {
	l, err := p.layer(ctx, d)
	if err != nil {
		return nil, 0, err
	}
	if l.size < 0 {
		if l.size, err = p.size(ctx, l); err != nil {
			return nil, 0, fmt.Errorf("layer %s: %w", d, err)
		}
	}
	r, err := p.tar(ctx, l)
	if err != nil {
		return nil, 0, fmt.Errorf("layer %s: %w", d, err)
	}
	if r.plain {
		return plainTar{io.NewSectionReader(r.blob, 0, l.size), r}, l.size, nil
	}
	return r, l.size, nil
}

// plainTar is a tar that can be read in any order.
type plainTar struct {
	*io.SectionReader
	io.Closer
}

func (p *unpackedOld) size(ctx context.Context, l *unpackedLayer) (int64, error) {
	r, err := p.tar(ctx, l)
	if err != nil {
		return -1, err
	}
	defer r.Close()
	if r.plain {
		return r.blob.Size(), nil
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil {
		return -1, err
	}
	return n, nil
}

// tar opens the layer's tar from its start.
func (p *unpackedOld) tar(ctx context.Context, l *unpackedLayer) (*blobTar, error) {
	if l.Blob == nil {
		return nil, fmt.Errorf("%w: its content was discarded after it was unpacked, and the delta needs the headers in it: make a delta that needs none (app-gen --files-only), or send the image whole", delta.ErrNoObject)
	}
	f, err := l.Blob(ctx)
	if err != nil {
		return nil, err
	}
	t := &blobTar{ctx: ctx, blob: f}
	if t.plain, err = isPlain(f); err == nil {
		t.r, t.end, err = Inflate(io.NewSectionReader(f, 0, f.Size()))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return t, nil
}

// blobTar is the tar in a blob.
type blobTar struct {
	ctx   context.Context
	blob  delta.File
	plain bool
	r     io.Reader
	end   func()
}

func (t *blobTar) Read(b []byte) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
	}
	return t.r.Read(b)
}

func (t *blobTar) Close() error {
	t.end()
	return t.blob.Close()
}

// The first bytes of compressed content (RFC 1952, RFC 8878).
const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
)

func isPlain(f delta.File) (bool, error) {
	head := make([]byte, 4)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	s := string(head[:n])
	return !strings.HasPrefix(s, gzipMagic) && !strings.HasPrefix(s, zstdMagic), nil
}

// maxWindow bounds the window of zstd, in bytes: containerd and Docker use at most
// 8 MiB.
const maxWindow = 8 << 20

// Inflate decompresses a gzip or zstd stream, and returns any other stream unchanged.
// end frees the decompressor.
func Inflate(r io.Reader) (plain io.Reader, end func(), err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, _ := br.Peek(4)
	switch {
	case strings.HasPrefix(string(head), gzipMagic):
		z, err := gzip.NewReader(br)
		return z, func() {}, err
	case strings.HasPrefix(string(head), zstdMagic):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return br, func() {}, nil
}

// Spool copies a stream to an unlinked file in dir. The file is gone when it is
// closed.
func Spool(dir string, r io.Reader) (f *os.File, size int64, err error) {
	if f, err = os.CreateTemp(dir, "spool-*"); err != nil {
		return nil, 0, err
	}
	if err = os.Remove(f.Name()); err == nil {
		size, err = io.Copy(f, r)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// NewFile makes a delta.File of an open file.
func NewFile(f *os.File) (delta.File, error) {
	fi, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return osFile{f, fi.Size()}, nil
}

type osFile struct {
	*os.File
	size int64
}

func (f osFile) Size() int64 { return f.size }

// Upper returns the directory with a layer's own files, from the mount that
// containerd would make for a snapshot on top of it: overlayfs' uppermost lower
// directory, or the source of a bind mount. It is "" for other mounts.
func Upper(kind, source string, options []string) string {
	dir := ""
	switch kind {
	case "bind":
		dir = source
	case "overlay":
		for _, o := range options {
			if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
				dir, _, _ = strings.Cut(lower, ":")
			}
		}
	}
	if !path.IsAbs(dir) {
		return ""
	}
	return dir
}
