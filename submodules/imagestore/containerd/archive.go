package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Archive writes an image (id's, or without one the image ref names) as an
// archive that every engine loads.
func (s *Store) Archive(ctx context.Context, ref string, id imagestore.Identity, w io.Writer) error {
	st, err := s.named(ctx, ref, id)
	if err != nil {
		return err
	}
	img, err := s.archive(ctx, st, image.FamiliarRef(ref))
	if err != nil {
		return err
	}
	// Sizes of compressed layers are known only when they have been read.
	if err := image.Verify(img); err != nil {
		return fmt.Errorf("save %s: %w", ref, err)
	}
	return image.WriteArchive(w, image.ArchiveSpec{Image: img, RepoTags: []string{image.FamiliarRef(ref)}})
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

// layerDir opens the directory of the uppermost layer of a chain. It is nil if the
// layer is not unpacked, or if its directory cannot be read in place. A lost
// directory is an error of the file system.
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
		err = fmt.Errorf("snapshot %s: %w", chain, err)
		if strings.Contains(err.Error(), unix.ENOENT.Error()) { // overlayfs checks the layers below
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return nil, nop, err
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
	if dir == "" {
		release()
		return nil, nop, nil // the snapshotter uses no directory
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		release()
		return nil, nop, err
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
