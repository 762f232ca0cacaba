package generator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
)

// readLayers reads every layer once, verifies it and learns its size. Where
// keep is set (deltas are made, which read at random) it is put uncompressed
// into the temporary directory and opened from there from now on. It returns
// for each layer of a new image what it takes compressed, if keep is set.
func (g *generation) readLayers(ctx context.Context, keep bool) (whole map[image.Digest]int64, err error) {
	var all []*image.Image
	isNew := map[image.Digest]bool{}
	for _, img := range g.images {
		all = append(all, img.Image)
		for _, d := range img.Image.DiffIDs {
			isNew[d] = true
		}
	}
	for _, img := range g.images {
		for _, b := range img.bases {
			all = append(all, b.Image)
		}
	}
	r := &layerReader{ctx: ctx, keep: keep, dir: g.temp, whole: map[image.Digest]int64{}, weigh: isNew}
	r.tell = func(done, total int64) { g.tell("read", "layers", done, total) }
	if err := r.read(all); err != nil {
		return nil, err
	}
	return r.whole, nil
}

// layerReader verifies layers, several at a time.
type layerReader struct {
	ctx   context.Context
	keep  bool
	dir   string
	weigh map[image.Digest]bool // those to compress, to know what they would take
	tell  func(done, total int64)

	mu    sync.Mutex
	done  int64
	whole map[image.Digest]int64
}

// read reads the layers of the images, each once by its diffID, and fills in
// their sizes (and with keep where they are opened) in all images.
func (r *layerReader) read(images []*image.Image) error {
	byID := map[image.Digest][]*image.Layer{}
	var order []image.Digest
	for _, img := range images {
		for i := range img.Layers {
			l := &img.Layers[i]
			if byID[l.DiffID] == nil {
				order = append(order, l.DiffID)
			}
			byID[l.DiffID] = append(byID[l.DiffID], l)
		}
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for _, id := range order {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := r.one(ctx, byID[id]); err != nil {
				cancel(fmt.Errorf("layer %s: %w", id, err))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

func (r *layerReader) one(ctx context.Context, same []*image.Layer) (err error) {
	from := same[0]
	for _, l := range same { // a copy that is not there is no harm if another is
		if l.Open != nil {
			from = l
			break
		}
	}
	in, err := from.Verified()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var out []io.Writer
	var file *os.File
	if r.keep {
		if file, err = os.Create(filepath.Join(r.dir, "layer-"+from.DiffID.Hex())); err != nil {
			return &WriteError{err}
		}
		defer func() {
			if cerr := file.Close(); err == nil && cerr != nil {
				err = &WriteError{cerr}
			}
		}()
		out = append(out, file)
	}
	weight := &counter{}
	var z *gzip.Writer
	if r.keep && r.weigh[from.DiffID] {
		if from.BlobSize > 0 && from.MediaType != image.MediaTypeLayer && from.MediaType != "" {
			weight.n = from.BlobSize
		} else {
			z = gzip.NewWriter(weight) // the level of a full image
			out = append(out, z)
		}
	}
	n, err := io.Copy(io.MultiWriter(append(out, progress{ctx, r})...), in)
	if err != nil {
		return err
	}
	if z != nil {
		if err := z.Close(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole[from.DiffID] = weight.n
	for _, l := range same {
		l.Size = n
		if file != nil {
			path := file.Name()
			// an *os.File, so that the delta encoder reads it in place
			l.Open = func() (io.ReadCloser, error) { return os.Open(path) }
		}
	}
	return nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// progress counts for the layer reader and ends the copy when the context does.
type progress struct {
	ctx context.Context
	r   *layerReader
}

func (p progress) Write(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	p.r.mu.Lock()
	p.r.done += int64(len(b))
	done := p.r.done
	p.r.mu.Unlock()
	if p.r.tell != nil {
		p.r.tell(done, -1)
	}
	return len(b), nil
}

// digestOf reads a file from its start.
func digestOf(f *os.File) (delta.Digest, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return "", 0, err
	}
	return delta.Digest(fmt.Sprintf("sha256:%x", h.Sum(nil))), n, nil
}
