package docker

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	dimage "github.com/docker/docker/api/types/image"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// inspectFallback describes an image that the engine lists but fails to describe:
// after a power cut emptied a file with the order of overlay2's layers, 20.10 fails
// with "readlink …/overlay2: invalid argument". Such an image can be removed, and has
// to be removed before it can be loaded again. inspectFallback uses the list of
// images and the image's config. If these are not enough, it returns cause, the
// engine's error.
func (e *Engine) inspectFallback(ctx context.Context, ref string, cause error) (Image, error) {
	o, err := e.openOverlay(ctx)
	if err != nil || o == nil {
		return Image{}, cause
	}
	list, err := e.list(ctx, dimage.ListOptions{})
	if err != nil {
		return Image{}, cause
	}
	at := slices.IndexFunc(list, func(s dimage.Summary) bool {
		return s.ID == ref || slices.ContainsFunc(s.RepoTags, func(t string) bool { return image.SameRef(t, ref) })
	})
	if at < 0 {
		return Image{}, cause
	}
	id, err := digest.Parse(list[at].ID)
	if err != nil {
		return Image{}, cause
	}
	config, err := o.config(id)
	if err != nil {
		return Image{}, cause
	}
	c, err := image.ParseConfig(config)
	if err != nil {
		return Image{}, cause
	}
	tags := slices.DeleteFunc(list[at].RepoTags, func(t string) bool { return t == "<none>:<none>" }) // of an image without a tag
	return Image{
		Identity: imagestore.Identity{Config: id, DiffIDs: c.RootFS.DiffIDs},
		ID:       list[at].ID, Tags: tags, Size: list[at].Size,
		Platform:   c.Platform(),
		inspectErr: cause,
	}, nil
}

// config reads the config of an image, and compares it with its digest.
func (o *overlay) config(id image.Digest) ([]byte, error) {
	f, err := os.Open(filepath.Join(o.root, "image", "overlay2", "imagedb", "content", "sha256", id.Hex()))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	config, err := io.ReadAll(io.LimitReader(f, image.MaxConfig+1))
	if err == nil && digest.Of(config) != id {
		err = fmt.Errorf("config %s: %w", id, image.ErrMismatch)
	}
	return config, err
}
