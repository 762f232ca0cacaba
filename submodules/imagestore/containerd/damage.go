package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// damage tells what is wrong with a layer of an image. An image whose config or
// manifest does not match its digest counts as missing.
type damage struct {
	layer int              // its index
	blob  ocidigest.Digest // the damaged blob; "" if it is undamaged or missing
	files []string         // the unpacked files that are damaged or missing
	gone  bool             // the layer is neither stored nor unpacked
	what  string
}

// Verify returns the damages of an image, by layer and file; none if it is
// undamaged. It compares every layer's blob with its diffID, and the unpacked files
// with the blob. This finds an image whose files a power cut emptied.
func (s *Store) Verify(ctx context.Context, ref string, id imagestore.Identity) ([]string, error) {
	st, err := s.named(ctx, ref, id)
	if errors.Is(err, submodules.ErrNotFound) {
		return []string{"it is not there"}, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := s.damages(ctx, st, 0)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, d := range list {
		problems = append(problems, d.what)
	}
	return problems, nil
}

// damages reads the layers of an image, beginning at index from.
func (s *Store) damages(ctx context.Context, st *stored, from int) (list []damage, err error) {
	chains := image.ChainIDs(st.diffIDs)
	for i := from; i < len(st.diffIDs); i++ {
		d, err := s.damageOf(ctx, st, i, chains[i])
		if err != nil {
			return nil, err
		}
		if d.what != "" {
			d.layer, d.what = i, fmt.Sprintf("layer %s: %s", st.diffIDs[i], d.what)
			list = append(list, d)
		}
	}
	return list, nil
}

// layerBlob returns a blob of an image's layer: the one that the manifest names,
// or else any other that the store has.
func (s *Store) layerBlob(ctx context.Context, st *stored, i int) (desc ocispec.Descriptor, ok bool, err error) {
	if ok, err := s.holds(ctx, st.layers[i]); err != nil || ok {
		return st.layers[i], ok, err
	}
	blobs, err := s.blobs(ctx, st.diffIDs[i:i+1])
	desc, ok = blobs[st.diffIDs[i]]
	return desc, ok, err
}

// damageOf reads one layer.
func (s *Store) damageOf(ctx context.Context, st *stored, i int, chain image.Digest) (d damage, err error) {
	desc, ok, err := s.layerBlob(ctx, st, i)
	if err != nil {
		return d, err
	}
	if !ok {
		unpacked, err := s.committed(ctx, chain)
		if err == nil && !unpacked {
			d.gone, d.what = true, "it is neither stored nor unpacked"
		}
		return d, err // discarded after unpacking: there is nothing to compare it with
	}
	l := &image.Layer{DiffID: st.diffIDs[i], Size: -1, Open: func() (io.ReadCloser, error) { return s.open(ctx, desc) }}
	bad, files, err := s.compare(ctx, l, chain)
	switch {
	case err != nil:
		return d, err
	case bad != nil:
		d.blob, d.what = desc.Digest, "its blob: "+bad.Error()
	case len(files) > 0:
		d.files, d.what = files, strings.Join(files, "; ")
	}
	return d, nil
}

// compare reads a layer once, and compares the unpacked files with it at the same
// time. bad describes damage of the layer itself.
func (s *Store) compare(ctx context.Context, l *image.Layer, chain image.Digest) (bad error, files []string, err error) {
	r, err := l.Verified()
	if err != nil {
		return err, nil, ctx.Err()
	}
	defer r.Close()
	dir, release, err := s.layerDir(ctx, chain)
	defer release()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		files = []string{"the directory that it was unpacked to is lost"}
	case err != nil:
		return nil, nil, err
	case dir != nil:
		defer dir.Close()
		files, bad = imagestore.Compare(ctx, r, dir)
	}
	if bad == nil {
		// Read to the end: the digest is compared there.
		_, bad = io.Copy(io.Discard, r)
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	return bad, files, nil
}
