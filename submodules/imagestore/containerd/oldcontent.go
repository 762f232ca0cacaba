package containerd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Old implements imagestore.Target: it reads the configs and layers of the store's
// images in place. The headers of a layer are in its blob. If the blob was
// discarded after unpacking, only the layer's files can be read, which is too
// little for most deltas.
func (s *Store) Old(ctx context.Context, _ []image.Digest) (imagestore.Old, error) {
	list, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	s.log("old content is read in place, out of containerd and where it was unpacked to")
	return imagestore.UnpackedStore{
		Layer: func(ctx context.Context, d image.Digest) (imagestore.LayerParts, error) { return s.parts(ctx, list, d) },
		Config: func(ctx context.Context, d image.Digest) (delta.File, error) {
			info, err := s.content().Info(ctx, ocidigest.Digest(d))
			if errdefs.IsNotFound(err) {
				return nil, fmt.Errorf("config %s: %w", d, delta.ErrNoObject)
			}
			if err != nil {
				return nil, err
			}
			return s.blob(ctx, ocispec.Descriptor{Digest: info.Digest, Size: info.Size})
		},
		TempDir: s.tempDir,
		Log:     s.log,
	}.Old(), nil
}

// parts finds where the store has a layer.
func (s *Store) parts(ctx context.Context, list []*stored, d image.Digest) (parts imagestore.LayerParts, err error) {
	for _, st := range list {
		i := slices.Index(st.diffIDs, d)
		if i < 0 {
			continue
		}
		desc := st.layers[i]
		// Prefer a blob that is not compressed.
		if parts.Blob == nil || desc.Digest == ocidigest.Digest(d) {
			if held, err := s.holds(ctx, desc); err != nil {
				return parts, err
			} else if held {
				parts.Blob = func(ctx context.Context) (delta.File, error) { return s.blob(ctx, desc) }
			}
		}
		if chain := image.ChainIDs(st.diffIDs)[i]; parts.Dir == nil {
			if unpacked, err := s.committed(ctx, chain); err != nil {
				return parts, err
			} else if unpacked {
				parts.Dir = func(ctx context.Context) (*os.Root, error) { return s.unpackedDir(ctx, chain) }
			}
		}
	}
	if parts.Blob == nil && parts.Dir == nil {
		return parts, delta.ErrNoObject
	}
	return parts, nil
}

// Room implements imagestore.Target.
func (s *Store) Room(ctx context.Context) (int64, error) {
	roots, err := s.roots(ctx)
	if err != nil {
		return 0, err
	}
	room := int64(imagestore.NoRoomLimit)
	for _, root := range roots {
		if free, err := imagestore.FreeBytes(root); err == nil {
			room = min(room, free)
		}
	}
	return room, nil
}

// blob opens a blob in place.
func (s *Store) blob(ctx context.Context, desc ocispec.Descriptor) (delta.File, error) {
	return s.content().ReaderAt(ctx, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
}

// unpackedDir opens the directory that the uppermost layer of a chain was
// unpacked to. It stays while an image has the layer.
func (s *Store) unpackedDir(ctx context.Context, chain image.Digest) (*os.Root, error) {
	dir, release, err := s.layerDir(ctx, chain)
	release()
	if err == nil && dir == nil {
		err = errors.New("the snapshotter has no directory of it")
	}
	return dir, err
}

// Save implements imagestore.Target: it writes what `ctr images export` writes. On
// Kubernetes, the shell reference's deltas start from that.
func (s *Store) Save(ctx context.Context, ref string) (*os.File, int64, error) {
	st, err := s.means(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	ref, _ = submodules.SplitURL(ref)
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

// open opens a layer's blob from its start, uncompressed.
func (s *Store) open(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	ra, err := s.content().ReaderAt(ctx, ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size})
	if err != nil {
		return nil, err
	}
	// Each read is a call of containerd.
	r, end, err := imagestore.Inflate(bufio.NewReaderSize(content.NewReader(ra), 256<<10))
	if err != nil {
		return nil, errors.Join(err, ra.Close())
	}
	return inflated{r, end, ra}, nil
}

type inflated struct {
	io.Reader
	end  func()
	blob io.Closer
}

func (i inflated) Close() error {
	i.end()
	return i.blob.Close()
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
		if desc.Digest == ocidigest.Digest(d) { // else it is compressed
			layers[i].Size = desc.Size
		}
		layers[i].Open = func() (io.ReadCloser, error) { return s.open(ctx, desc) }
	}
	return image.New(config, layers, tags...)
}
