package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
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

// Verify says what is wrong with an image, "" if nothing is: every layer's blob
// is read and compared with its diffID, and the files that were unpacked of it
// with the blob. This is what finds an image whose files a power cut emptied.
func (s *Store) Verify(ctx context.Context, ref string, id imagestore.Identity) (string, error) {
	st, err := s.named(ctx, ref, id)
	if errors.Is(err, submodules.ErrNotFound) {
		return "it is not there", nil
	}
	if err != nil {
		return "", err
	}
	if st.config != id.Config && id.Config != "" {
		return fmt.Sprintf("it is %s, not %s", st.config, id.Config), nil
	}
	img, err := s.archive(ctx, st)
	if err != nil {
		return "", err
	}
	chains := image.ChainIDs(st.diffIDs)
	for i := range img.Layers {
		l := &img.Layers[i]
		if l.Open == nil {
			ok, err := s.committed(ctx, chains[i])
			if err != nil {
				return "", err
			}
			if !ok {
				return fmt.Sprintf("layer %s is neither stored nor unpacked", l.DiffID), nil
			}
			continue // discarded after unpacking: there is nothing to compare it with
		}
		problem, err := s.verifyLayer(ctx, l, chains[i])
		if problem != "" || err != nil {
			return problem, err
		}
	}
	return "", nil
}

// verifyLayer reads a layer once, and compares on the way.
func (s *Store) verifyLayer(ctx context.Context, l *image.Layer, chain image.Digest) (string, error) {
	r, err := l.Verified()
	if err != nil {
		return fmt.Sprintf("layer %s: %v", l.DiffID, err), nil
	}
	defer r.Close()
	dir, release, err := s.layerDir(ctx, chain)
	if err != nil {
		return "", err
	}
	defer release()
	problem := ""
	if dir != nil {
		defer dir.Close()
		problem, err = compare(ctx, tar.NewReader(r), dir)
	}
	if err == nil && problem == "" {
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil && ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return fmt.Sprintf("layer %s: %v", l.DiffID, err), nil
	}
	if problem != "" {
		problem = fmt.Sprintf("layer %s as it is unpacked: %s", l.DiffID, problem)
	}
	return problem, nil
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

// maxProblems bounds what compare remembers of a layer.
const maxProblems = 1000

// compare looks for the regular files of a layer in the directory it was
// unpacked to, and names one that is not as it should be. Of two entries with
// one name the later counts.
func compare(ctx context.Context, tr *tar.Reader, dir *os.Root) (string, error) {
	buf := make([]byte, 128<<10)
	bad := map[string]string{}
	for {
		h, err := tr.Next()
		if err == io.EOF || len(bad) > maxProblems {
			for _, problem := range bad {
				return problem, nil
			}
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		delete(bad, name)
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(path.Base(name), ".wh.") {
			continue
		}
		problem, err := compareFile(tr, dir, name, h.Size, buf)
		if err != nil {
			return "", err
		}
		if problem != "" {
			bad[name] = problem
		}
	}
}

func compareFile(r io.Reader, dir *os.Root, name string, size int64, buf []byte) (string, error) {
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name + " is missing", nil
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", name, err), nil
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Size() != size {
		return fmt.Sprintf("%s does not have its %d bytes", name, size), err
	}
	a, b := buf[:len(buf)/2], buf[len(buf)/2:]
	for {
		n, err := io.ReadFull(r, a)
		if n > 0 {
			if _, ferr := io.ReadFull(f, b[:n]); ferr != nil || !bytes.Equal(a[:n], b[:n]) {
				return name + " is damaged", nil
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
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
