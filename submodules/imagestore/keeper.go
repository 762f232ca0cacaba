package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
)

// Keeper stores what a repair needs in the repair's directory.
type Keeper struct {
	*Source // the archives that the repair was given
	app     string
	dir     RepairDir
}

// MakeRoom prepares the directory for need bytes. It fails with
// submodules.ErrSpace if they do not fit. Call it before anything is kept.
func (k *Keeper) MakeRoom(need int64) error { return k.dir.Make(need) }

// SourceSize is the size of a layer in the source, 0 if it is not there.
func (k *Keeper) SourceSize(d image.Digest) int64 {
	for _, l := range k.Source.Layers(d) {
		if l.Size > 0 {
			return l.Size
		}
	}
	return 0
}

// Layer keeps a layer: the first copy that matches its diffID, from the source
// or else from the store. It returns false if there is no such copy.
func (k *Keeper) Layer(ctx context.Context, d image.Digest, copies func() ([]*image.Layer, error)) (bool, error) {
	if k.dir.Has(d) {
		return true, nil
	}
	if kept, err := k.dir.KeepFirst(ctx, d, k.Source.Layers(d)...); kept || err != nil {
		return kept, err
	}
	own, err := copies()
	if err != nil {
		return false, err
	}
	return k.dir.KeepFirst(ctx, d, own...)
}

// Kept returns a layer that was kept; ok is false if it was not.
func (k *Keeper) Kept(d image.Digest) (l image.Layer, ok bool) { return k.dir.Layer(d) }

// Config keeps an image's config, from the source or else from old.
func (k *Keeper) Config(ctx context.Context, config image.Digest, old func() (Old, error)) error {
	if img := k.Source.Image(config); img != nil {
		return k.dir.KeepConfig(config, img.Config)
	}
	o, err := old()
	if err != nil {
		return err
	}
	data, err := readConfig(ctx, o, config)
	if err != nil {
		return err
	}
	return k.dir.KeepConfig(config, data)
}

// Missing plans the load of an image that the store does not have from the source.
func (k *Keeper) Missing(w Damaged) (RepairImage, error) {
	p := RepairImage{URL: w.URL, Config: w.Config, DiffIDs: w.DiffIDs, Names: []string{OwnRef(k.app, w.Config)}}
	img := k.Source.Image(w.Config)
	if img == nil {
		if p.DiffIDs != nil {
			return p, nil // other images may have its layers
		}
		return p, k.Lost(w.URL, "it is not there")
	}
	if img.ConfigDigest != w.Config {
		p.Names = []string{ManifestRef(k.app, w.Config)}
	}
	p.Config, p.DiffIDs = img.ConfigDigest, img.DiffIDs
	return p, nil
}

// Lost returns the error for an image that cannot be repaired, with what to do
// about it. name is the name of the image for people.
func (k *Keeper) Lost(name, what string) error { return k.Source.Lost(k.app, name, what) }

// keptConfig returns a config that was kept, or else the store's.
func keptConfig(ctx context.Context, s RepairStore, dir RepairDir, d image.Digest) ([]byte, error) {
	config, err := os.ReadFile(dir.Path(d))
	if !errors.Is(err, fs.ErrNotExist) {
		return config, err
	}
	old, err := s.Old(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	return readConfig(ctx, old, d)
}

// readConfig reads a config from old content, and compares it with its digest.
func readConfig(ctx context.Context, old Old, d image.Digest) ([]byte, error) {
	f, err := old.OpenFile(ctx, d, "")
	if err != nil {
		return nil, fmt.Errorf("config %s: %w", d, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, min(f.Size(), image.MaxConfig)))
	if err == nil && digest.Of(b) != d {
		err = image.ErrMismatch
	}
	if err != nil {
		return nil, fmt.Errorf("config %s: %w", d, err)
	}
	return b, nil
}
