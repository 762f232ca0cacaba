package docker

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
)

// saved is old content out of the streams of docker save, for engines whose
// store cannot be read in place. The layers of an image are kept, uncompressed,
// in unlinked files of the temporary directory from the first time one of them
// is asked for.
type saved struct {
	e       *Engine
	dir     string
	images  []Image // not fetched yet; nil before the first question
	asked   bool
	layers  map[image.Digest]*savedLayer
	configs map[image.Digest][]byte
}

func (e *Engine) openSaved(dir string) *saved {
	return &saved{e: e, dir: dir, layers: map[image.Digest]*savedLayer{}, configs: map[image.Digest][]byte{}}
}

// Close implements imagestore.Old.
func (s *saved) Close() error {
	for _, l := range s.layers {
		_ = l.f.Close()
	}
	return nil
}

// fetch saves images until one had what is looked for.
func (s *saved) fetch(ctx context.Context, has func(Image) bool) error {
	if !s.asked {
		all, err := s.e.all(ctx)
		if err != nil {
			return err
		}
		s.images, s.asked = all, true
	}
	i := slices.IndexFunc(s.images, has)
	if i < 0 {
		return delta.ErrNoObject
	}
	img := s.images[i]
	s.images = slices.Delete(s.images, i, i+1)
	s.e.log("old content is read out of docker save " + img.ID)
	r, err := s.e.cli.ImageSave(ctx, []string{img.ID})
	if err != nil {
		return fmt.Errorf("docker save: %w", err)
	}
	defer r.Close()
	members := map[string]*savedLayer{}
	imgs, err := image.ReadStream(r, image.Limits{}, image.Handler{Layer: func(m image.Member, r io.Reader) error {
		l, err := keepLayer(s.dir, m, r)
		members[m.Name] = l
		return err
	}})
	if err == nil {
		for _, in := range imgs {
			s.configs[in.ConfigDigest] = in.Config
			for i, name := range in.Members {
				if l := members[name]; l != nil && s.layers[in.DiffIDs[i]] == nil {
					s.layers[in.DiffIDs[i]] = l
				}
			}
		}
	}
	for _, l := range members {
		if l != nil && !inUse(s.layers, l) {
			_ = l.f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("docker save: %w", err)
	}
	return nil
}

func inUse(layers map[image.Digest]*savedLayer, l *savedLayer) bool {
	for _, u := range layers {
		if u == l {
			return true
		}
	}
	return false
}

// layer returns a layer, fetched if need be.
func (s *saved) layer(ctx context.Context, in delta.Digest) (*savedLayer, error) {
	d := image.Digest(in)
	for s.layers[d] == nil {
		if err := s.fetch(ctx, func(img Image) bool { return slices.Contains(img.DiffIDs, d) }); err != nil {
			return nil, fmt.Errorf("layer %s: %w", d, err)
		}
	}
	l := s.layers[d]
	if err := l.scan(); err != nil {
		return nil, fmt.Errorf("layer %s: %w", d, err)
	}
	return l, nil
}

// OpenFile implements delta.Old.
func (s *saved) OpenFile(ctx context.Context, in delta.Digest, name string) (delta.File, error) {
	if name == "" {
		d := image.Digest(in)
		for s.configs[d] == nil {
			if err := s.fetch(ctx, func(img Image) bool { return img.Config == d }); err != nil {
				return nil, fmt.Errorf("config %s: %w", d, err)
			}
		}
		return memory{strings.NewReader(string(s.configs[d]))}, nil
	}
	l, err := s.layer(ctx, in)
	if err != nil {
		return nil, err
	}
	at, ok := l.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return section{io.NewSectionReader(l.f, at.offset, at.size)}, nil
}

// Headers implements delta.Old.
func (s *saved) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	l, err := s.layer(ctx, in)
	if err != nil {
		return nil, err
	}
	if l.sparse {
		return nil, fmt.Errorf("layer %s has sparse files", in)
	}
	return &savedHeaders{l: l}, nil
}

// Layer implements imagestore.Old.
func (s *saved) Layer(ctx context.Context, d image.Digest) (io.ReadCloser, int64, error) {
	l, err := s.layer(ctx, delta.Digest(d))
	if err != nil {
		return nil, 0, err
	}
	fi, err := l.f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(io.NewSectionReader(l.f, 0, fi.Size())), fi.Size(), nil
}

type memory struct{ *strings.Reader }

func (memory) Close() error { return nil }

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

// savedLayer is one layer's tar in a file.
type savedLayer struct {
	f       *os.File
	scanned bool
	sparse  bool
	files   map[string]extent
	headers []extent // of each member
}

type extent struct{ offset, size int64 }

// keepLayer writes a layer, uncompressed, into a file without a name.
func keepLayer(dir string, m image.Member, r io.Reader) (*savedLayer, error) {
	switch m.Compression {
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	}
	f, err := os.CreateTemp(dir, "layer-*.tar")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	if _, err := io.Copy(f, r); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &savedLayer{f: f}, nil
}

// scan finds where in the tar everything is.
func (l *savedLayer) scan() error {
	if l.scanned {
		return nil
	}
	if _, err := l.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	l.files = map[string]extent{}
	tr := tar.NewReader(l.f)
	var end int64 // of the member before, with its padding
	for {
		h, err := tr.Next()
		if err == io.EOF {
			l.scanned = true
			return nil
		}
		if err != nil {
			return err
		}
		// archive/tar reads whole blocks and no further: the file stands where
		// the content begins.
		at, err := l.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if isSparse(h) {
			l.sparse = true
			continue
		}
		l.headers = append(l.headers, extent{end, at - end})
		end = at + h.Size + -h.Size&511
		if h.Typeflag == tar.TypeReg {
			l.files[strings.TrimPrefix(path.Clean("/"+h.Name), "/")] = extent{at, h.Size}
		}
	}
}

func isSparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// savedHeaders gives the headers of a layer's members.
type savedHeaders struct {
	l    *savedLayer
	next int
	buf  []byte
}

func (h *savedHeaders) Next() ([]byte, error) {
	if h.next == len(h.l.headers) {
		return nil, io.EOF
	}
	e := h.l.headers[h.next]
	h.next++
	if e.size > maxHeaders {
		return nil, fmt.Errorf("headers of more than %d bytes", maxHeaders)
	}
	if int64(cap(h.buf)) < e.size {
		h.buf = make([]byte, e.size)
	}
	h.buf = h.buf[:e.size]
	if _, err := h.l.f.ReadAt(h.buf, e.offset); err != nil {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return h.buf, nil
}

func (h *savedHeaders) Close() error { return nil }
