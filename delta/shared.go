package delta

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Names in the headers of the two consecutive deltas of an image that comes for
// several bases. The first makes files that the deltas for all bases need, the
// second makes the image. See FORMAT.md, "Shared content".
const (
	// SharedContent is the image that the first delta makes. It has one tar
	// object, whose files are old content for the second delta.
	SharedContent = "shared:content"
	// SharedBase is an old image with one tar object, which stands for all
	// layers of the base: a path in it means the file of the topmost layer that
	// has one at that path. Its headers are never read.
	SharedBase = "shared:base"
)

// WithSharedBase adds to old the object that shared content is made from
// (SharedBase): all layers of the base image as one object with the given digest.
// layers are their digests, base first. A digest of "" names no object.
func WithSharedBase(old Old, digest Digest, layers []Digest) Old {
	return &mergedLayers{Old: old, digest: digest, layers: layers}
}

// mergedLayers presents all layers of an image as one object.
type mergedLayers struct {
	Old
	digest Digest
	layers []Digest // base first
}

// OpenFile finds a file in the topmost layer that has it. A layer in which a parent
// of the path is not a directory does not have it.
func (m *mergedLayers) OpenFile(ctx context.Context, in Digest, path string) (File, error) {
	if in != m.digest || path == "" {
		return m.Old.OpenFile(ctx, in, path)
	}
	for i := len(m.layers) - 1; i >= 0; i-- {
		f, err := m.Old.OpenFile(ctx, m.layers[i], path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		return f, err
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}

// Headers refuses: shared content is made only from the content of files.
func (m *mergedLayers) Headers(ctx context.Context, in Digest) (HeaderReader, error) {
	if in == m.digest {
		return nil, fmt.Errorf("%w: shared content with headers of its base", ErrFormat)
	}
	return m.Old.Headers(ctx, in)
}
