package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/write"
)

// Layers has what reading layers found out, by diffID.
type Layers map[image.Digest]Layer

// Layer is a layer that was read and verified, by this run or an earlier one.
type Layer struct {
	Size int64
	// Compressed is how many bytes it takes compressed; 0 if not measured.
	Compressed int64 `json:",omitempty"`
	Unpacked   int64 `json:",omitempty"` // bytes that its files take, where that is more than Size; else 0
	// Classic says why Docker's classic image store does not take it; "" if it does.
	Classic string `json:",omitempty"`

	kept func() (string, error) // the file of its uncompressed tar
}

// Of returns a copy of an image whose layers have their sizes and are opened from the
// files in which they are kept: as an *os.File, which the delta encoder reads in place.
func (ls Layers) Of(img *image.Image) *image.Image {
	c := *img
	c.Layers = append([]image.Layer(nil), img.Layers...)
	for i := range c.Layers {
		l := &c.Layers[i]
		read := ls[l.DiffID]
		l.Size = read.Size
		l.Open = func() (io.ReadCloser, error) {
			path, err := read.kept()
			if err != nil {
				return nil, err
			}
			return os.Open(path)
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

// LayerReader verifies layers, several at a time. Those that an earlier run has read are
// read again only if somebody opens them.
type LayerReader struct {
	Dir      string                // keeps them uncompressed
	Measure  map[image.Digest]bool // layers to compress
	Cache    *Cache                // of what reading found out
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
	found := Layers{}
	var unknown []image.Digest
	for _, id := range order {
		if l, ok := lr.Cache.layer(id); ok && (l.Compressed > 0 || !lr.Measure[id]) {
			found[id] = lr.later(ctx, byID[id], l)
		} else {
			unknown = append(unknown, id)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards found
	for _, id := range unknown {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			l, err := lr.one(ctx, byID[id], 0)
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

// one reads a layer. compressed is how many bytes it takes compressed, if that is known.
func (lr *LayerReader) one(ctx context.Context, from image.Layer, compressed int64) (l Layer, err error) {
	in, err := from.Verified()
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	file, err := os.Create(filepath.Join(lr.Dir, "layer-"+from.DiffID.Hex()))
	if err != nil {
		return l, &write.Error{Err: err}
	}
	defer func() {
		if cerr := file.Close(); err == nil && cerr != nil {
			err = &write.Error{Err: cerr}
		}
	}()
	l.kept = func() (string, error) { return file.Name(), nil }
	out := []io.Writer{onDisk(file)}
	var z *gzip.Writer
	switch {
	case compressed > 0:
		l.Compressed = compressed
	case !lr.Measure[from.DiffID]:
	case isCompressed(from):
		l.Compressed = from.BlobSize
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
	if err == nil && z != nil {
		err = z.Close()
	}
	if err == nil {
		lr.Cache.keepLayer(from.DiffID, l)
	}
	return l, err
}

// later is a layer of which an earlier run knows everything but the content.
func (lr *LayerReader) later(ctx context.Context, from image.Layer, known Layer) Layer {
	known.kept = sync.OnceValues(func() (string, error) {
		got, err := lr.one(ctx, from, known.Compressed)
		if err != nil {
			return "", fmt.Errorf("layer %s: %w", from.DiffID, err)
		}
		if got.Size != known.Size {
			return "", fmt.Errorf("layer %s has %d bytes, and the cache said %d: run it again", from.DiffID, got.Size, known.Size)
		}
		return got.kept()
	})
	return known
}

func (lr *LayerReader) step(n int64) {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	lr.done += n
	if lr.Progress != nil {
		lr.Progress(lr.done)
	}
}

// isCompressed reports whether a layer is stored compressed.
func isCompressed(l image.Layer) bool {
	return l.BlobSize > 0 && l.MediaType != image.MediaTypeLayer && l.MediaType != ""
}

// cachedLayer is the kind of cache entries that have a Layer, by its diffID.
const cachedLayer = "layer"

// maxLayer bounds such an entry, in bytes.
const maxLayer = 64 << 10

// layer is what an earlier run found out about a layer.
func (c *Cache) layer(id image.Digest) (l Layer, ok bool) {
	entry, err := c.Read(CacheKey{Kind: cachedLayer, Hex: id.Hex()}, maxLayer)
	sum, b, _ := bytes.Cut(entry, []byte("\n"))
	return l, err == nil && string(sum) == layerSum(id, b) && json.Unmarshal(b, &l) == nil && min(l.Size, l.Compressed, l.Unpacked) >= 0
}

// keepLayer saves time in later runs: a failure does not matter.
func (c *Cache) keepLayer(id image.Digest, l Layer) {
	if b, err := json.Marshal(l); err == nil {
		_ = c.Write(CacheKey{Kind: cachedLayer, Hex: id.Hex()}, append([]byte(layerSum(id, b)+"\n"), b...))
	}
}

// layerSum is the first line of an entry: it shows that the entry is whole and of that layer.
func layerSum(id image.Digest, b []byte) string {
	return digest.Of(append([]byte(id), b...)).Hex()
}

// cachedConfig is the kind of cache entries that are configs of images.
const cachedConfig = "config"

// KeepConfig makes Later know the image.
func (c *Cache) KeepConfig(img *image.Image) error {
	if c.image(img.ConfigDigest) != nil {
		return nil
	}
	return c.Write(CacheKey{Kind: cachedConfig, Hex: img.ConfigDigest.Hex()}, img.Config)
}
