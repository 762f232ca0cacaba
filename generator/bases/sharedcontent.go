package bases

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
)

// SharedContent is what the deltas over several bases have in common, as two images
// of one layer each. Their tars lie in the directory given to FindShared.
type SharedContent struct {
	// Base holds the files that are the same in all bases. Whatever base a
	// device has, it can make this image.
	Base delta.Image
	// New holds the files of the new image that several bases lack.
	New  delta.Image
	Size int64 // of the tar of New, in bytes

	paths []string
}

// Remove removes the tars.
func (c *SharedContent) Remove() {
	for _, p := range c.paths {
		os.Remove(p)
	}
}

// FindShared compares next with its bases and writes what they share to new files in
// dir. It returns nil if nothing is worth sharing. The layers of all images must
// be uncompressed files: what Layer.Open gives must be an *os.File.
func FindShared(ctx context.Context, dir string, next *image.Image, bases []*image.Image) (*SharedContent, error) {
	trees := make([]*imageFiles, len(bases))
	var err error
	for i, b := range bases {
		if trees[i], err = readImageFiles(ctx, b, nil); err != nil {
			return nil, fmt.Errorf("base %s: %w", b.ConfigDigest, err)
		}
	}
	inAll := func(d image.Digest) bool {
		return !slices.ContainsFunc(bases, func(b *image.Image) bool { return !slices.Contains(b.DiffIDs, d) })
	}
	tree, err := readImageFiles(ctx, next, inAll)
	if err != nil {
		return nil, err
	}
	same := trees[0].alike(trees[1:])
	share := tree.worthSharing(trees, same)
	if len(share) == 0 {
		return nil, nil
	}
	content, err := packFiles(ctx, dir, share, false)
	if err != nil {
		return nil, err
	}
	base, err := packFiles(ctx, dir, same, true)
	if err != nil {
		os.Remove(content.path)
		return nil, err
	}
	return &SharedContent{
		Base: base.image(delta.SharedBase), New: content.image(delta.SharedContent), Size: content.size,
		paths: []string{base.path, content.path},
	}, nil
}

// packedFiles is a tar of files.
type packedFiles struct {
	path   string
	digest delta.Digest
	size   int64
}

func (p *packedFiles) image(name string) delta.Image {
	return delta.Image{Name: name, Objects: []delta.Object{{
		Digest: p.digest, Size: p.size, Kind: delta.Tar, Open: func() (io.ReadCloser, error) { return os.Open(p.path) },
	}}}
}
