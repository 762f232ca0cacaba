package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Damage describes the damage of one layer of an image.
type Damage struct {
	Layer image.Digest // its diffID
	Chain image.Digest // its chain ID
	What  []string     // descriptions, with names of files; at least one
}

func (d Damage) String() string {
	return fmt.Sprintf("layer %s: %s", d.Layer, strings.Join(d.What, "; "))
}

// Verify reads the whole image and compares it with its digests. The error is
// submodules.ErrNotFound for a missing image, and ErrContent for a damaged one.
func (e *Engine) Verify(ctx context.Context, app string, id imagestore.Identity, hint string) error {
	img, err := e.Find(ctx, app, id, hint)
	if err != nil {
		return err
	}
	damages, err := e.Damages(ctx, img)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range damages {
		errs = append(errs, errors.New(d.String()))
	}
	return submodules.Mark(errors.Join(errs...), submodules.ErrContent)
}

// Damages reads an image with all its layers once, and returns the layers that do
// not match their diffIDs. If the store is on this machine, it reads the files as
// containers see them: some engines list and save an image whose files a power
// cut emptied.
func (e *Engine) Damages(ctx context.Context, img Image) ([]Damage, error) {
	o, err := e.openOverlay(ctx)
	if err != nil {
		return nil, err
	}
	if o != nil {
		return o.damages(ctx, img)
	}
	if len(img.layers) == len(img.DiffIDs) {
		dirs, err := e.contentDirs(ctx)
		if err != nil {
			return nil, err
		}
		if len(dirs) > 0 {
			return e.containerdDamages(ctx, img, dirs)
		}
	}
	return e.archiveDamages(ctx, img)
}

// archiveDamages reads the image out of docker save.
func (e *Engine) archiveDamages(ctx context.Context, img Image) ([]Damage, error) {
	all := func(err error) []Damage { // it is unknown which layer is damaged
		return []Damage{{What: []string{err.Error()}}}
	}
	r, err := e.cli.ImageSave(ctx, []string{img.ID})
	if err != nil {
		return nil, fmt.Errorf("docker save: %w", err)
	}
	defer r.Close()
	imgs, err := image.ReadStream(r, image.Limits{}, image.Handler{})
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return all(fmt.Errorf("docker save: %w", err)), nil
	}
	for _, s := range imgs {
		if s.ConfigDigest != img.Config {
			continue
		}
		var damages []Damage
		chains := image.ChainIDs(s.DiffIDs)
		for i, m := range s.Members {
			if m == "" {
				damages = append(damages, Damage{s.DiffIDs[i], chains[i], []string{"docker save leaves it out"}})
			}
		}
		return damages, nil
	}
	return all(fmt.Errorf("docker save gave another image than %s", img.Config)), nil
}

// findings collects what is wrong with a layer.
type findings struct {
	what []string
	more int
}

func (f *findings) add(format string, args ...any) {
	if len(f.what) == imagestore.MaxNamed {
		f.more++
		return
	}
	f.what = append(f.what, fmt.Sprintf(format, args...))
}

func (f *findings) list() []string {
	if f.more > 0 {
		return append(f.what, fmt.Sprintf("and %d more", f.more))
	}
	return f.what
}
