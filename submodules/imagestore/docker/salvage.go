package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// salvage gathers whole layers and configs.
type salvage struct {
	e        *Engine
	s        RepairSpec
	a        *affected
	overlay  *overlay // nil for a store that cannot be read so
	plan     *repairPlan
	content  imagestore.Old // what the engine has; nil until it is asked for
	archives []*image.Archive
}

// spoolRepair puts every layer and config of the plan's images into the spool,
// each verified.
func (e *Engine) spoolRepair(ctx context.Context, s RepairSpec, a *affected, plan *repairPlan) error {
	sv := &salvage{e: e, s: s, a: a, plan: plan}
	defer sv.close()
	var err error
	if sv.overlay, err = e.openOverlay(ctx); err != nil {
		return err
	}
	if err := sv.open(); err != nil {
		return err
	}
	if err := sv.complete(plan); err != nil {
		return err
	}
	if err := sv.room(plan); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, spoolDir), 0o700); err != nil {
		return err
	}
	for _, p := range plan.Images {
		if err := sv.config(ctx, p); err != nil {
			return err
		}
		chains := image.ChainIDs(p.DiffIDs)
		for i, d := range p.DiffIDs {
			if err := sv.layer(ctx, p, d, chains[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens the archives of the source.
func (sv *salvage) open() error {
	if sv.s.Source == "" {
		return nil
	}
	entries, err := os.ReadDir(sv.s.Source)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		a, err := image.OpenArchive(filepath.Join(sv.s.Source, entry.Name()))
		if err != nil {
			return submodules.Mark(fmt.Errorf("source: %w", err), submodules.ErrContent)
		}
		sv.archives = append(sv.archives, a)
	}
	return nil
}

// old is what the engine has.
func (sv *salvage) old(ctx context.Context) (imagestore.Old, error) {
	if sv.content == nil {
		var layers []image.Digest
		for _, p := range sv.plan.Images {
			layers = append(layers, p.DiffIDs...)
		}
		o, err := sv.e.old(ctx, layers, sv.s.TempDir)
		if err != nil {
			return nil, err
		}
		sv.content = o
	}
	return sv.content, nil
}

func (sv *salvage) close() {
	if sv.content != nil {
		_ = sv.content.Close()
	}
	for _, a := range sv.archives {
		_ = a.Close()
	}
}

// complete finds the layers of images that are missing altogether.
func (sv *salvage) complete(plan *repairPlan) error {
	for i := range plan.Images {
		p := &plan.Images[i]
		if p.DiffIDs != nil {
			continue
		}
		img := sv.image(p.Config)
		if img == nil {
			return sv.lost(p.Config, "it is not there")
		}
		if p.Config != img.ConfigDigest {
			p.Config, p.Tags = img.ConfigDigest, []string{imagestore.ManifestRef(sv.s.App, p.Config)}
		}
		p.DiffIDs = img.DiffIDs
	}
	return nil
}

// image is the source's image with that config, or one that a manifest of that
// digest leads to; nil if there is none.
func (sv *salvage) image(config image.Digest) *image.Image {
	for _, a := range sv.archives {
		for _, img := range a.Images() {
			if img.ConfigDigest == config || slices.Contains(img.Manifests, config) {
				return img
			}
		}
	}
	return nil
}

// lost says that an image cannot be made whole, and what to do.
func (sv *salvage) lost(config image.Digest, what string) error {
	name := sv.a.urls[config]
	if name == "" {
		name = "image " + config.String() + ", which shares a damaged layer,"
	}
	next := "get an artifact that carries it whole and run: mender-app verify --repair --from FILE.mender " + sv.s.App
	if sv.s.Source != "" {
		next = "the artifact that was given does not carry it whole; " + next
	}
	return submodules.Mark(fmt.Errorf("%s cannot be repaired with what is on this device, and nothing was changed: %s; %s", name, what, next), submodules.ErrContent)
}

// room refuses what does not fit into the file system of the spool.
func (sv *salvage) room(plan *repairPlan) error {
	var need int64
	seen := map[image.Digest]bool{}
	for _, p := range plan.Images {
		for _, d := range p.DiffIDs {
			if seen[d] {
				continue
			}
			seen[d] = true
			if sv.overlay != nil {
				if n, err := sv.overlay.size(d); err == nil {
					need += n
					continue
				}
			}
			for _, l := range sv.fromSource(d) {
				if l.Size > 0 {
					need += l.Size
					break
				}
			}
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(sv.s.Dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", sv.s.Dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); need+repairGap > free {
		return submodules.Mark(fmt.Errorf("the repair needs %d bytes on the file system of %s and %d are free: free some and try again", need+repairGap, sv.s.Dir, free), submodules.ErrSpace)
	}
	return nil
}

// fromSource are the source's copies of a layer.
func (sv *salvage) fromSource(d image.Digest) (list []*image.Layer) {
	for _, a := range sv.archives {
		for _, img := range a.Images() {
			for i := range img.Layers {
				if l := &img.Layers[i]; l.DiffID == d && l.Open != nil {
					list = append(list, l)
				}
			}
		}
	}
	return list
}

// config puts an image's config into the spool.
func (sv *salvage) config(ctx context.Context, p repairImage) error {
	var config []byte
	if img := sv.image(p.Config); img != nil {
		config = img.Config
	} else if o, err := sv.old(ctx); err != nil {
		return err
	} else {
		f, err := o.OpenFile(ctx, delta.Digest(p.Config), "")
		if err == nil {
			config, err = io.ReadAll(io.NewSectionReader(f, 0, min(f.Size(), image.MaxConfig)))
			_ = f.Close()
		}
		if err == nil && image.DigestOf(config) != p.Config {
			err = image.ErrMismatch
		}
		if err != nil {
			return sv.lost(p.Config, fmt.Sprintf("its config: %v", err))
		}
	}
	return os.WriteFile(filepath.Join(sv.s.Dir, spoolDir, p.Config.Hex()), config, 0o600)
}

// layer puts a layer into the spool: out of the engine where it is whole there,
// in whatever place, else out of the source.
func (sv *salvage) layer(ctx context.Context, p repairImage, d, chain image.Digest) error {
	name := filepath.Join(sv.s.Dir, spoolDir, d.Hex())
	if _, err := os.Stat(name); err == nil {
		return nil // of another image
	}
	for _, l := range sv.fromSource(d) {
		if err := keepVerified(ctx, name, l); err == nil {
			return nil
		} else if outOfSpace(err) || ctx.Err() != nil {
			return err
		}
	}
	if sv.overlay != nil {
		for _, dir := range sv.overlay.all(d) {
			l := image.Layer{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { return sv.overlay.tarOf(dir) }}
			if err := keepVerified(ctx, name, &l); err == nil {
				return nil
			} else if outOfSpace(err) || ctx.Err() != nil {
				return err
			}
		}
	} else if o, err := sv.old(ctx); err != nil {
		return err
	} else {
		l := image.Layer{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { r, _, err := o.Layer(ctx, d); return r, err }}
		if err := keepVerified(ctx, name, &l); err == nil {
			return nil
		} else if outOfSpace(err) || ctx.Err() != nil {
			return err
		}
	}
	what := Damage{Layer: d, Chain: chain, What: []string{"it is not there whole"}}
	if known, ok := sv.a.chains[chain]; ok {
		what = known
	}
	return sv.lost(p.Config, what.String())
}

func outOfSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// keepVerified writes a layer to a file that is there only if the layer is what
// its diffID says.
func keepVerified(ctx context.Context, name string, l *image.Layer) error {
	r, err := l.Verified()
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, stopping{ctx, r})
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// stopping is a reader that ends with its context.
type stopping struct {
	ctx context.Context
	r   io.Reader
}

func (s stopping) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

// all returns the directories of layerdb that have a layer: the same one can
// lie over different others.
func (o *overlay) all(d image.Digest) (dirs []string) {
	db := filepath.Join(o.root, "image", "overlay2", "layerdb", "sha256")
	list, err := os.ReadDir(db)
	if err != nil {
		return nil
	}
	for _, entry := range list {
		dir := filepath.Join(db, entry.Name())
		if b, err := readSmall(filepath.Join(dir, "diff")); err == nil && strings.TrimSpace(string(b)) == d.String() {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
