package docker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vbatts/tar-split/tar/storage"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// damages reads every layer of an image in place.
func (o *overlay) damages(ctx context.Context, img Image) (list []Damage, err error) {
	var below string // the driver's directory of the layer below
	for i, chain := range image.ChainIDs(img.DiffIDs) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var f findings
		below = o.checkLayer(ctx, filepath.Join(o.root, "image", "overlay2", "layerdb", "sha256", chain.Hex()), img.DiffIDs[i], below, &f)
		if len(f.what) > 0 {
			list = append(list, Damage{img.DiffIDs[i], chain, f.list()})
		}
	}
	return list, ctx.Err()
}

// checkLayer checks one layer: the engine's records of it, the links by which
// overlayfs finds it, and its content. It returns the driver's directory of it.
func (o *overlay) checkLayer(ctx context.Context, chain string, diffID image.Digest, below string, f *findings) string {
	b, err := readSmall(filepath.Join(chain, "diff"))
	if err != nil || strings.TrimSpace(string(b)) != diffID.String() {
		f.add("the engine's record of it is damaged")
	}
	dir, err := o.place(chain)
	if err != nil {
		f.add("%v", err)
		return ""
	}
	o.linked(dir, below, f)
	root, err := os.OpenRoot(filepath.Join(dir, "diff"))
	if err != nil {
		f.add("%v", err)
		return dir
	}
	defer root.Close()
	up, c, err := splitOf(chain)
	if err != nil {
		f.add("the engine's record of its files is damaged: %v", err)
		return dir
	}
	defer c.Close()
	problems, sum, err := compareSplit(ctx, root, up)
	for _, what := range problems {
		f.add("%s", what)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.add("the engine's record of its files is damaged: %v", err)
	case sum != "" && sum != diffID && len(f.what) == 0:
		f.add("it is %s", sum)
	}
	return dir
}

// linked checks the short names by which overlay2 mounts a layer over the layers
// below: the file link has a name in l/, a link to diff, and the file lower has the
// names of the layers below. If they are empty, every container fails with "too many
// levels of symbolic links" (20.10, after a power cut).
func (o *overlay) linked(dir, below string, f *findings) {
	name, err := readSmall(filepath.Join(dir, "link"))
	if err != nil || len(name) == 0 || bytes.ContainsAny(name, "/\x00") {
		f.add("the driver's file link is damaged")
		return
	}
	at := filepath.Join(o.root, "overlay2", "l", string(name))
	to, err := os.Readlink(at)
	if err != nil || filepath.Join(filepath.Dir(at), to) != filepath.Join(dir, "diff") {
		f.add("the driver's link %s is damaged", filepath.Base(at))
	}
	if below == "" {
		return
	}
	want, err := readSmall(filepath.Join(below, "link"))
	if err != nil {
		return // reported for the layer below
	}
	want = append([]byte("l/"), want...)
	if lower, err := os.ReadFile(filepath.Join(below, "lower")); err == nil {
		want = append(append(want, ':'), lower...)
	}
	if have, err := os.ReadFile(filepath.Join(dir, "lower")); err != nil || !bytes.Equal(have, want) {
		f.add("the driver's file lower is damaged")
	}
}

// compareSplit compares a layer's files with their sums in its tar-split, and whatever
// else its headers tell with what is there. sum is the digest of the layer's tar; it is
// "" where the engine cannot rebuild the tar from what it keeps: after damage, of a
// sparse file, and of a file that a later member of the same layer replaced.
func compareSplit(ctx context.Context, root *os.Root, up storage.Unpacker) (problems []string, sum image.Digest, err error) {
	c := imagestore.NewComparison(root)
	h := sha256.New()
	buf := make([]byte, 64<<10)
	rebuilt := true
	err = eachMember(up, func(segment []byte) error {
		h.Write(segment)
		return ctx.Err()
	}, func(m splitMember) error {
		whole := m.size == 0
		err := c.Member(m.Member, func(f *os.File) (string, error) {
			var what string
			whole, what = m.copy(h, f, buf)
			return what, nil
		})
		rebuilt = rebuilt && whole && !m.sparse && !c.Full()
		return err
	})
	if rebuilt {
		sum = digest.OfHash(h)
	}
	return c.Problems(), sum, err
}

// containerdDamages reads every layer of an image in the containerd store: its
// blob and its unpacked files. If the snapshotter cannot be reached, it reads only
// the blobs and logs a warning.
func (e *Engine) containerdDamages(ctx context.Context, img Image, dirs contentDirs) (list []Damage, err error) {
	at, err := e.openSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	if at == nil {
		e.log("warning: containerd is out of reach: what it unpacked of image " + img.Config.String() + " is not verified")
	} else {
		defer at.Close()
	}
	for i, chain := range image.ChainIDs(img.DiffIDs) {
		var f findings
		if err := checkContainerdLayer(ctx, dirs, at, img.layers[i].Digest, img.DiffIDs[i], chain, &f); err != nil {
			return nil, err
		}
		if len(f.what) > 0 {
			list = append(list, Damage{img.DiffIDs[i], chain, f.list()})
		}
	}
	return list, nil
}

// checkContainerdLayer checks one layer. An error is the context's.
func checkContainerdLayer(ctx context.Context, dirs contentDirs, at *snapshots, blob, diffID, chain image.Digest, f *findings) error {
	stored, err := dirs.open(blob)
	if err != nil {
		f.add("its blob %s: %v", blob, err)
		return ctx.Err()
	}
	defer stored.Close()
	h := sha256.New()
	var what []string
	plain, end, err := imagestore.Inflate(stored)
	if err == nil {
		defer end()
		r := io.TeeReader(plain, h)
		if at != nil {
			if what, err = compareUnpacked(ctx, r, at, chain); err != nil && ctx.Err() != nil {
				return err
			}
		}
		_, err = io.Copy(io.Discard, metered.Reader(ctx, r, nil))
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		f.add("its blob %s: %v", blob, err)
	case digest.OfHash(h) != diffID:
		f.add("its blob %s is damaged", blob)
	default:
		for _, w := range what {
			f.add("%s", w)
		}
	}
	return nil
}

// compareUnpacked compares a layer's tar with the files that were unpacked.
func compareUnpacked(ctx context.Context, r io.Reader, at *snapshots, chain image.Digest) ([]string, error) {
	dir, err := at.dir(ctx, chain)
	if err != nil {
		return []string{fmt.Sprintf("as it is unpacked: %v", err)}, ctx.Err()
	}
	defer dir.Close()
	what, err := imagestore.Compare(ctx, r, dir)
	if err != nil {
		return []string{fmt.Sprintf("as it is unpacked: %v", err)}, err
	}
	return what, nil
}
