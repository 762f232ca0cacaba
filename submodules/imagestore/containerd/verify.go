package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Archive writes an image (id's, or without one the image ref names) as an
// archive that every engine loads.
func (s *Store) Archive(ctx context.Context, ref string, id imagestore.Identity, w io.Writer) error {
	st, err := s.named(ctx, ref, id)
	if err != nil {
		return err
	}
	img, err := s.archive(ctx, st, imagestore.FamiliarRef(ref))
	if err != nil {
		return err
	}
	// Sizes of compressed layers are known only when they have been read.
	if err := image.Verify(img); err != nil {
		return fmt.Errorf("save %s: %w", ref, err)
	}
	return image.WriteArchive(w, image.ArchiveSpec{Image: img, RepoTags: []string{imagestore.FamiliarRef(ref)}})
}

// named finds an image by identity, or by what ref names now.
func (s *Store) named(ctx context.Context, ref string, id imagestore.Identity) (*stored, error) {
	if id.Config != "" {
		st, err := s.find(ctx, id)
		if err != nil {
			return nil, err
		}
		if st == nil {
			return nil, missing(ref, id)
		}
		return st, nil
	}
	list, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, st := range list {
		for _, n := range st.names {
			if n == Canonical(ref) {
				return st, nil
			}
		}
	}
	return nil, missing(ref, id)
}

// Verify says what is wrong with an image, layer by layer and file by file;
// nothing if it is whole: every layer's blob is read and compared with its
// diffID, and the files that were unpacked of it with the blob. This is what
// finds an image whose files a power cut emptied.
func (s *Store) Verify(ctx context.Context, ref string, id imagestore.Identity) ([]string, error) {
	st, err := s.named(ctx, ref, id)
	if errors.Is(err, submodules.ErrNotFound) {
		return []string{"it is not there"}, nil
	}
	if err != nil {
		return nil, err
	}
	if st.config != id.Config && id.Config != "" {
		return []string{fmt.Sprintf("it is %s, not %s", st.config, id.Config)}, nil
	}
	img, err := s.archive(ctx, st)
	if err != nil {
		return nil, err
	}
	var problems []string
	chains := image.ChainIDs(st.diffIDs)
	for i := range img.Layers {
		l := &img.Layers[i]
		if l.Open == nil {
			ok, err := s.committed(ctx, chains[i])
			if err != nil {
				return nil, err
			}
			if !ok {
				problems = append(problems, fmt.Sprintf("layer %s: it is neither stored nor unpacked", l.DiffID))
			}
			continue // discarded after unpacking: there is nothing to compare it with
		}
		what, err := s.verifyLayer(ctx, l, chains[i])
		if err != nil {
			return nil, err
		}
		if len(what) > 0 {
			problems = append(problems, fmt.Sprintf("layer %s: %s", l.DiffID, strings.Join(what, "; ")))
		}
	}
	return problems, nil
}

// verifyLayer reads a layer once, and compares on the way.
func (s *Store) verifyLayer(ctx context.Context, l *image.Layer, chain image.Digest) (what []string, err error) {
	r, err := l.Verified()
	if err != nil {
		return []string{err.Error()}, nil
	}
	defer r.Close()
	dir, release, err := s.layerDir(ctx, chain)
	if err != nil {
		return nil, err
	}
	defer release()
	if dir != nil {
		defer dir.Close()
		what, err = imagestore.Compare(ctx, r, dir, true)
	}
	if err == nil {
		// To the end, where it shows whether the blob is what it should be.
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return []string{"its blob: " + err.Error()}, nil
	}
	return what, nil
}

// layerDir opens the directory of the uppermost layer of a chain, nil where
// the snapshotter has none that can be read as it lies there.
func (s *Store) layerDir(ctx context.Context, chain image.Digest) (*os.Root, func(), error) {
	nop := func() {}
	if ok, err := s.committed(ctx, chain); err != nil || !ok {
		return nil, nop, err
	}
	ctx, done, err := s.client.WithLease(ctx)
	if err != nil {
		return nil, nop, err
	}
	key := fmt.Sprintf("mender-app-%d-%d", os.Getpid(), ingests.Add(1))
	mounts, err := s.snapshots().View(ctx, key, chain.String())
	if err != nil {
		_ = done(context.WithoutCancel(ctx))
		return nil, nop, fmt.Errorf("snapshot %s: %w", chain, err)
	}
	release := func() {
		ctx := context.WithoutCancel(ctx)
		_ = s.snapshots().Remove(ctx, key)
		_ = done(ctx)
	}
	dir := ""
	if len(mounts) == 1 {
		dir = imagestore.Upper(mounts[0].Type, mounts[0].Source, mounts[0].Options)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		release()
		return nil, nop, nil // containerd has its files elsewhere
	}
	return root, release, nil
}

// Storage returns the directories that containerd keeps images in, the content
// first.
func (s *Store) Storage(ctx context.Context) ([]string, error) {
	roots, err := s.roots(ctx)
	slices.Sort(roots)
	return roots, err
}

// Sync returns when everything the store has is on the disk: containerd syncs
// neither the files it unpacks nor, before some versions, its blobs.
func (s *Store) Sync(ctx context.Context) error {
	roots, err := s.roots(ctx)
	if err != nil {
		return err
	}
	done := map[uint64]bool{}
	for _, root := range roots {
		dev, err := syncfs(root, done)
		if err != nil {
			return fmt.Errorf("sync %s: %w", root, err)
		}
		done[dev] = true
	}
	if len(done) == 0 {
		return errors.New("containerd does not say where its files are: they cannot be synced")
	}
	return nil
}

// roots are the directories that containerd keeps images in.
func (s *Store) roots(ctx context.Context) (roots []string, err error) {
	resp, err := s.client.IntrospectionService().Plugins(ctx)
	if err != nil {
		return nil, fmt.Errorf("containerd plugins: %w", err)
	}
	for _, p := range resp.Plugins {
		if root := p.Exports["root"]; root != "" && (p.ID == "content" || p.ID == "bolt" || p.ID == s.snapshotter) {
			roots = append(roots, root)
		}
	}
	return roots, nil
}

func syncfs(dir string, done map[uint64]bool) (uint64, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	dev := uint64(st.Dev) //nolint:unconvert // it is 32 bits wide on some machines
	if done[dev] {
		return dev, nil
	}
	return dev, unix.Syncfs(int(f.Fd()))
}
