package docker

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// layerKeeper keeps the whole layers and configs that a repair loads again.
type layerKeeper struct {
	e       *Engine
	k       *imagestore.Keeper
	a       *affected
	overlay *overlay // nil for a store that cannot be read so
	plan    *imagestore.RepairPlan
	content imagestore.Old // what the engine has; nil until it is asked for
	tempDir string
}

// keepLayers keeps every layer and config of the plan's images, each verified.
func (e *Engine) keepLayers(ctx context.Context, k *imagestore.Keeper, a *affected, plan *imagestore.RepairPlan, tempDir string) (err error) {
	lk := &layerKeeper{e: e, k: k, a: a, plan: plan, tempDir: tempDir}
	defer lk.close()
	if lk.overlay, err = e.openOverlay(ctx); err != nil {
		return err
	}
	if err := k.MakeRoom(lk.need()); err != nil {
		return err
	}
	for _, p := range plan.Images {
		if err := k.Config(ctx, p.Config, func() (imagestore.Old, error) { return lk.old(ctx) }); err != nil {
			return k.Lost(lk.name(p), fmt.Sprintf("its config: %v", err))
		}
		chains := image.ChainIDs(p.DiffIDs)
		for i, d := range p.DiffIDs {
			if err := lk.layer(ctx, p, d, chains[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// old is what the engine has.
func (lk *layerKeeper) old(ctx context.Context) (imagestore.Old, error) {
	if lk.content == nil {
		var layers []image.Digest
		for _, p := range lk.plan.Images {
			layers = append(layers, p.DiffIDs...)
		}
		o, err := lk.e.old(ctx, layers, lk.tempDir)
		if err != nil {
			return nil, err
		}
		lk.content = o
	}
	return lk.content, nil
}

func (lk *layerKeeper) close() {
	if lk.content != nil {
		_ = lk.content.Close()
	}
}

// name is what people call an image.
func (lk *layerKeeper) name(p imagestore.RepairImage) string {
	if p.URL != "" {
		return p.URL
	}
	if url := lk.a.urls[p.Config]; url != "" {
		return url
	}
	return "image " + p.Config.String() + ", which shares a damaged layer,"
}

// need is what has to be kept, in bytes.
func (lk *layerKeeper) need() (need int64) {
	seen := map[image.Digest]bool{}
	for _, p := range lk.plan.Images {
		for _, d := range p.DiffIDs {
			if seen[d] {
				continue
			}
			seen[d] = true
			if lk.overlay != nil {
				if n, err := lk.overlay.size(d); err == nil {
					need += n
					continue
				}
			}
			need += lk.k.SourceSize(d)
		}
	}
	return need
}

// layer keeps a layer: from the source, or else any whole copy in the engine.
func (lk *layerKeeper) layer(ctx context.Context, p imagestore.RepairImage, d, chain image.Digest) error {
	kept, err := lk.k.Layer(ctx, d, func() (copies []*image.Layer, err error) {
		if lk.overlay != nil {
			for _, dir := range lk.overlay.all(d) {
				copies = append(copies, &image.Layer{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { return lk.overlay.tarOf(dir) }})
			}
			return copies, nil
		}
		o, err := lk.old(ctx)
		if err != nil {
			return nil, err
		}
		return []*image.Layer{{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { r, _, err := o.Layer(ctx, d); return r, err }}}, nil
	})
	if err != nil || kept {
		return err
	}
	what := Damage{Layer: d, Chain: chain, What: []string{"it is not there whole"}}
	if known, ok := lk.a.chains[chain]; ok {
		what = known
	}
	return lk.k.Lost(lk.name(p), what.String())
}

// all returns the directories of layerdb for a layer. There are several if it is
// used on top of different layers.
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
