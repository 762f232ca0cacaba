package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/write"
)

// Layers has what reading layers found out, by diffID.
type Layers map[image.Digest]Layer

// Layer is a layer that was read and verified.
type Layer struct {
	Size int64
	// Compressed is how many bytes it takes compressed; 0 if not measured.
	Compressed int64
	Unpacked   int64 // bytes that its files take, where that is more than Size; else 0
	// Classic says why Docker's classic image store does not take it; "" if it does.
	Classic string
	path    string // its uncompressed tar; "" if it was not kept
}

// Of returns a copy of an image whose layers have their sizes and, where they
// were kept, are opened from their files: as an *os.File, which the delta encoder
// reads in place.
func (ls Layers) Of(img *image.Image) *image.Image {
	c := *img
	c.Layers = append([]image.Layer(nil), img.Layers...)
	for i := range c.Layers {
		l := &c.Layers[i]
		read := ls[l.DiffID]
		l.Size = read.Size
		if read.path != "" {
			l.Open = func() (io.ReadCloser, error) { return os.Open(read.path) }
		}
	}
	return &c
}

// Keep verifies the layers of an image, and returns a copy whose layers are
// uncompressed files in dir. progress is called with the bytes read so far.
func Keep(ctx context.Context, dir string, img *image.Image, progress func(done int64)) (*image.Image, error) {
	lr := LayerReader{Dir: dir, Progress: progress}
	ls, err := lr.Read(ctx, []*image.Image{img})
	if err != nil {
		return nil, err
	}
	return ls.Of(img), nil
}

// LayerReader verifies layers, several at a time.
type LayerReader struct {
	Dir      string                // keeps them uncompressed; "": they are not kept
	Measure  map[image.Digest]bool // layers to compress, of those that are kept
	Cache    *Cache                // of what they take compressed
	Progress func(done int64)      // calls do not overlap; may be nil

	mu   sync.Mutex
	done int64
}

// Read reads the layers of the images, each once.
func (lr *LayerReader) Read(ctx context.Context, images []*image.Image) (Layers, error) {
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
	found := Layers{}
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

func (lr *LayerReader) one(ctx context.Context, from image.Layer) (l Layer, err error) {
	in, err := from.Verified()
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var out []io.Writer
	if lr.Dir != "" {
		var file *os.File
		if file, err = os.Create(filepath.Join(lr.Dir, "layer-"+from.DiffID.Hex())); err != nil {
			return l, &write.Error{Err: err}
		}
		defer func() {
			if cerr := file.Close(); err == nil && cerr != nil {
				err = &write.Error{Err: cerr}
			}
		}()
		l.path = file.Name()
		out = append(out, onDisk(file))
	}
	var z *gzip.Writer
	switch {
	case lr.Dir == "" || !lr.Measure[from.DiffID]:
	case lr.Cache.Compressed(from) > 0:
		l.Compressed = lr.Cache.Compressed(from)
	default:
		z = gzip.NewWriter(metered.Writer(ctx, io.Discard, func(n int64) { l.Compressed += n })) // the level of a full image
		out = append(out, z)
	}
	files := newMeter()
	out = append(out, files, metered.Writer(ctx, io.Discard, lr.step))
	l.Size, err = io.Copy(io.MultiWriter(out...), in)
	if n := files.End(); n > l.Size {
		l.Unpacked = n
	}
	l.Classic = files.classic
	if err == nil && files.refused != nil {
		err = files.refused
	}
	if err != nil {
		return l, err
	}
	if z != nil {
		if err = z.Close(); err == nil {
			lr.keepCompressed(from.DiffID, l.Compressed)
		}
	}
	return l, err
}

func (lr *LayerReader) step(n int64) {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	lr.done += n
	if lr.Progress != nil {
		lr.Progress(lr.done)
	}
}

// cachedSize is the kind of cache entries that say how many bytes a layer takes
// compressed, in digits.
const cachedSize = "gzip"

// Compressed returns how many bytes a layer takes compressed, by its blob or an earlier run; 0
// if neither says it.
func (c *Cache) Compressed(l image.Layer) int64 {
	if l.BlobSize > 0 && l.MediaType != image.MediaTypeLayer && l.MediaType != "" {
		return l.BlobSize
	}
	b, err := c.Read(CacheKey{Kind: cachedSize, Hex: l.DiffID.Hex()}, 20)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (lr *LayerReader) keepCompressed(id image.Digest, n int64) {
	// A report of what is saved is all that this is for: a failure does not matter.
	_ = lr.Cache.Write(CacheKey{Kind: cachedSize, Hex: id.Hex()}, strconv.AppendInt(nil, n, 10))
}
