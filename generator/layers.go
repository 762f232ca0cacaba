package generator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/cache"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/unpacked"
)

// layers has the results of reading layers, by diffID.
type layers map[image.Digest]layer

type layer struct {
	size int64
	path string // its uncompressed tar; "" if it was not kept
	// compressed is how many bytes the layer takes compressed; 0 if not measured.
	compressed int64
	unpacked   int64 // bytes that its files take, where that is more than size; else 0
}

// of returns a copy of an image whose layers have their sizes and, where they
// were kept, are opened from their files.
func (ls layers) of(img *image.Image) *image.Image {
	c := *img
	c.Layers = append([]image.Layer(nil), img.Layers...)
	for i := range c.Layers {
		l := &c.Layers[i]
		read := ls[l.DiffID]
		l.Size = read.size
		if read.path != "" {
			// an *os.File, so that the delta encoder reads it in place
			l.Open = func() (io.ReadCloser, error) { return os.Open(read.path) }
		}
	}
	return &c
}

func (ls layers) found(f *source.Found) *source.Found {
	c := *f
	c.Image = ls.of(f.Image)
	return &c
}

// readLayers reads every layer of the images and their bases once, and verifies
// it. If deltas are made or images looked into, which reads at random, it keeps
// the uncompressed layers in the temporary directory. For deltas it measures what
// new layers take compressed. It returns the images with what it found out.
func (r *run) readLayers(ctx context.Context, images []foundImage) ([]foundImage, layers, error) {
	var all []*image.Image
	isNew := map[image.Digest]bool{}
	for _, img := range images {
		all = append(all, img.Image)
		for _, d := range img.Image.DiffIDs {
			isNew[d] = true
		}
	}
	for _, img := range images {
		for _, b := range img.named {
			all = append(all, b.Image)
		}
	}
	reader := layerReader{keep: true, dir: r.temp, measure: isNew, cache: r.cache}
	if !r.Images.makesDeltas(images) {
		reader.keep, reader.measure = r.Build.SBOM != "", nil
	}
	reader.tell = func(done int64) { r.tell("read", "layers", done, -1) }
	ls, err := reader.read(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	out := make([]foundImage, len(images))
	for i, img := range images {
		out[i].Found, out[i].whole = ls.found(img.Found), img.whole
		for _, b := range img.named {
			out[i].named = append(out[i].named, ls.found(b))
		}
	}
	return out, ls, nil
}

// makesDeltas reports whether any image is sent as a delta.
func (o *Images) makesDeltas(images []foundImage) bool {
	delta := o.DeepDelta
	for _, img := range images {
		delta = delta || len(img.named) > 0
	}
	return delta && len(images) > 0
}

// layerReader verifies layers, several at a time.
type layerReader struct {
	keep    bool // uncompressed, in dir
	dir     string
	measure map[image.Digest]bool // layers to compress, with keep
	cache   *cache.Cache          // of what they take compressed
	tell    func(done int64)      // calls do not overlap

	mu   sync.Mutex
	done int64
}

// read reads the layers of the images, each once.
func (lr *layerReader) read(ctx context.Context, images []*image.Image) (layers, error) {
	byID := map[image.Digest]image.Layer{}
	var order []image.Digest
	for _, img := range images {
		for _, l := range img.Layers {
			have, known := byID[l.DiffID]
			if !known {
				order = append(order, l.DiffID)
			}
			if !known || have.Open == nil { // take a copy whose content is there
				byID[l.DiffID] = l
			}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards found
	found := layers{}
	for _, id := range order {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			l, err := lr.one(ctx, byID[id])
			if err != nil {
				cancel(fmt.Errorf("layer %s: %w", id, err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found[id] = l
		})
	}
	wg.Wait()
	return found, context.Cause(ctx)
}

func (lr *layerReader) one(ctx context.Context, from image.Layer) (l layer, err error) {
	in, err := from.Verified()
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var out []io.Writer
	if lr.keep {
		var file *os.File
		if file, err = os.Create(filepath.Join(lr.dir, "layer-"+from.DiffID.Hex())); err != nil {
			return l, &WriteError{Err: err}
		}
		defer func() {
			if cerr := file.Close(); err == nil && cerr != nil {
				err = &WriteError{Err: cerr}
			}
		}()
		l.path = file.Name()
		out = append(out, file)
	}
	var z *gzip.Writer
	switch {
	case !lr.keep || !lr.measure[from.DiffID]:
	case from.BlobSize > 0 && from.MediaType != image.MediaTypeLayer && from.MediaType != "":
		l.compressed = from.BlobSize
	case lr.cachedCompressed(from.DiffID) > 0:
		l.compressed = lr.cachedCompressed(from.DiffID)
	default:
		z = gzip.NewWriter(metered.Writer(ctx, io.Discard, func(n int64) { l.compressed += n })) // the level of a full image
		out = append(out, z)
	}
	files := unpacked.NewMeter()
	out = append(out, files, metered.Writer(ctx, io.Discard, lr.step))
	l.size, err = io.Copy(io.MultiWriter(out...), in)
	if unpacked := files.End(); unpacked > l.size {
		l.unpacked = unpacked
	}
	if err != nil {
		return l, err
	}
	if z != nil {
		if err = z.Close(); err == nil {
			lr.keepCompressed(from.DiffID, l.compressed)
		}
	}
	return l, err
}

func (lr *layerReader) step(n int64) {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	lr.done += n
	if lr.tell != nil {
		lr.tell(lr.done)
	}
}
