package docker

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// layerKeeper gathers whole layers and configs.
type layerKeeper struct {
	e       *Engine
	s       RepairSpec
	a       *affected
	overlay *overlay // nil for a store that cannot be read so
	plan    *repairPlan
	content imagestore.Old // what the engine has; nil until it is asked for
	source  *imagestore.Source
	spool   imagestore.RepairDir
}

// keepLayers puts every layer and config of the plan's images into the spool,
// each verified.
func (e *Engine) keepLayers(ctx context.Context, s RepairSpec, a *affected, plan *repairPlan) error {
	source, err := imagestore.OpenSource(s.Source)
	if err != nil {
		return err
	}
	defer source.Close()
	sv := &layerKeeper{e: e, s: s, a: a, plan: plan, source: source, spool: imagestore.RepairDir(s.Dir)}
	defer sv.close()
	if sv.overlay, err = e.openOverlay(ctx); err != nil {
		return err
	}
	if err := sv.complete(plan); err != nil {
		return err
	}
	if err := sv.spool.Make(sv.need(plan)); err != nil {
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

// old is what the engine has.
func (sv *layerKeeper) old(ctx context.Context) (imagestore.Old, error) {
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

func (sv *layerKeeper) close() {
	if sv.content != nil {
		_ = sv.content.Close()
	}
}

// complete finds the layers of images that are missing altogether.
func (sv *layerKeeper) complete(plan *repairPlan) error {
	for i := range plan.Images {
		p := &plan.Images[i]
		if p.DiffIDs != nil {
			continue
		}
		img := sv.source.Image(p.Config)
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

// lost says that an image cannot be made whole, and what to do.
func (sv *layerKeeper) lost(config image.Digest, what string) error {
	name := sv.a.urls[config]
	if name == "" {
		name = "image " + config.String() + ", which shares a damaged layer,"
	}
	return sv.source.Lost(sv.s.App, name, what)
}

// need is what the spool takes, in bytes.
func (sv *layerKeeper) need(plan *repairPlan) (need int64) {
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
			for _, l := range sv.source.Layers(d) {
				if l.Size > 0 {
					need += l.Size
					break
				}
			}
		}
	}
	return need
}

// config puts an image's config into the spool.
func (sv *layerKeeper) config(ctx context.Context, p repairImage) error {
	var config []byte
	if img := sv.source.Image(p.Config); img != nil {
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
	return sv.spool.KeepConfig(p.Config, config)
}

// layer puts a layer into the spool: out of the engine where it is whole there,
// in whatever place, else out of the source.
func (sv *layerKeeper) layer(ctx context.Context, p repairImage, d, chain image.Digest) error {
	if sv.spool.Has(d) {
		return nil // of another image
	}
	copies := sv.source.Layers(d)
	if sv.overlay != nil {
		for _, dir := range sv.overlay.all(d) {
			copies = append(copies, &image.Layer{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { return sv.overlay.tarOf(dir) }})
		}
	} else if o, err := sv.old(ctx); err != nil {
		return err
	} else {
		copies = append(copies, &image.Layer{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { r, _, err := o.Layer(ctx, d); return r, err }})
	}
	if kept, err := sv.spool.KeepFirst(ctx, d, copies...); err != nil || kept {
		return err
	}
	what := Damage{Layer: d, Chain: chain, What: []string{"it is not there whole"}}
	if known, ok := sv.a.chains[chain]; ok {
		what = known
	}
	return sv.lost(p.Config, what.String())
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
