package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// target is the engine as imagestore sees it.
type target struct {
	e       *Engine
	tempDir string
}

// Store returns the engine as an image store. tempDir is for copies of old content
// while an image is loaded.
func (e *Engine) Store(tempDir string) imagestore.Store { return target{e, tempDir} }

// Find implements imagestore.Store.
func (t target) Find(ctx context.Context, app string, id imagestore.Identity, hint string) (imagestore.Stored, error) {
	img, err := t.e.Find(ctx, app, id, hint)
	return img.stored(), err
}

// Named implements imagestore.Store.
func (t target) Named(ctx context.Context, ref string) (imagestore.Stored, error) {
	img, _, err := t.e.named(ctx, ref)
	return img.stored(), err
}

// Name implements imagestore.Store.
func (t target) Name(ctx context.Context, img imagestore.Stored, ref, _ string) error {
	return t.e.tag(ctx, img.ID, img.Config, ref)
}

// Unname implements imagestore.Store.
func (t target) Unname(ctx context.Context, ref string) error {
	_, err := t.e.Untag(ctx, ref)
	if client.IsErrConnectionFailed(err) {
		return nil
	}
	return err
}

// Has implements imagestore.Target.
func (t target) Has(ctx context.Context, id imagestore.Identity) (bool, error) {
	_, err := t.e.Find(ctx, "", id, "")
	if errors.Is(err, submodules.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Present implements imagestore.Target. The classic store needs no content for
// a layer if it has the whole chain up to it, from any image. The containerd store
// needs no content for a layer whose blob it has; the manifest then names that blob.
func (t target) Present(ctx context.Context, diffIDs []image.Digest) (map[image.Digest]image.Descriptor, error) {
	ctd, err := t.e.containerd(ctx)
	if err != nil {
		return nil, err
	}
	all, err := t.e.all(ctx)
	if err != nil {
		return nil, err
	}
	if ctd {
		dirs, err := t.e.contentDirs(ctx)
		if err != nil {
			return nil, err
		}
		return held(all, diffIDs, dirs.has), nil
	}
	return chained(all, diffIDs), nil
}

// chained returns the layers at the bottom of diffIDs that some image has at
// its bottom too.
func chained(all []Image, diffIDs []image.Digest) map[image.Digest]image.Descriptor {
	longest := longestChain(all, diffIDs)
	present := map[image.Digest]image.Descriptor{}
	for _, d := range diffIDs[:longest] {
		present[d] = image.Descriptor{}
	}
	// A layer that occurs again above the present ones must be in the archive.
	for _, d := range diffIDs[longest:] {
		delete(present, d)
	}
	return present
}

// longestChain returns how many of diffIDs, from the bottom, an image has.
func longestChain(all []Image, diffIDs []image.Digest) int {
	longest := 0
	for _, img := range all {
		n := 0
		for n < len(img.DiffIDs) && n < len(diffIDs) && img.DiffIDs[n] == diffIDs[n] {
			n++
		}
		longest = max(longest, n)
	}
	return longest
}

// held returns those of diffIDs whose blob some image has and the store holds.
func held(all []Image, diffIDs []image.Digest, has func(image.Descriptor) bool) map[image.Digest]image.Descriptor {
	present := map[image.Digest]image.Descriptor{}
	for _, img := range all {
		if len(img.layers) != len(img.DiffIDs) {
			continue
		}
		for i, d := range img.DiffIDs {
			desc := img.layers[i]
			if _, ok := present[d]; !ok && slices.Contains(diffIDs, d) && desc.Digest.Valid() && has(desc) {
				desc.Annotations = nil
				present[d] = desc
			}
		}
	}
	return present
}

// Old implements imagestore.Target.
func (t target) Old(ctx context.Context, layers []image.Digest) (imagestore.Old, error) {
	return t.e.old(ctx, layers, t.tempDir)
}

// Room implements imagestore.Target.
func (t target) Room(ctx context.Context) (int64, error) {
	dirs, err := t.e.dirs(ctx)
	if err != nil || len(dirs) == 0 {
		return imagestore.NoRoomLimit, err
	}
	room := int64(imagestore.NoRoomLimit)
	for _, dir := range dirs {
		free, err := imagestore.FreeBytes(dir)
		if err != nil {
			return 0, err
		}
		room = min(room, free)
	}
	return room, nil
}

// Save implements imagestore.Target.
func (t target) Save(ctx context.Context, ref string) (*os.File, int64, error) {
	_, called, err := t.e.named(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	name, err := t.e.spool(ctx, called, t.tempDir)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(name)
	_ = os.Remove(name)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}

// Load implements imagestore.Target.
func (t target) Load(ctx context.Context, archive io.Reader) error {
	res, err := t.e.cli.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return loadError(err)
	}
	defer res.Body.Close()
	return readLoad(res.Body)
}

// maxLoadReply bounds the engine's reply to a load, in bytes.
const maxLoadReply = 4 << 20

// readLoad reads the reply, JSON documents one after another. The engine replies with
// status 200 and reports errors in these documents.
func readLoad(r io.Reader) error {
	dec := json.NewDecoder(io.LimitReader(r, maxLoadReply))
	for {
		var m struct {
			Stream string `json:"stream"`
			Error  string `json:"error"`
			Detail struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		err := dec.Decode(&m)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reply of docker load: %w", err)
		}
		switch {
		case m.Error != "":
			return loadError(errors.New(m.Error))
		case m.Detail.Message != "":
			return loadError(errors.New(m.Detail.Message))
		case strings.HasPrefix(m.Stream, "Error "):
			// The containerd store: "Error unpacking image …".
			return loadError(errors.New(strings.TrimSpace(m.Stream)))
		}
	}
}

// loadError marks the errors of the engine that callers handle differently.
func loadError(err error) error {
	err = fmt.Errorf("docker load: %w", err)
	if strings.Contains(err.Error(), "no space left on device") {
		return submodules.Mark(err, submodules.ErrSpace)
	}
	return err
}

// Sync returns when everything that the engine was given is on the disk: engines do
// not sync the files they unpack (20.10 to 28.5, seen with strace). If the data root is
// not on this machine, Sync only logs that.
func (e *Engine) Sync(ctx context.Context) error {
	dirs, err := e.dirs(ctx)
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		e.log("warning: the engine's data is not on this machine or out of reach; it cannot be synced from here")
		return nil
	}
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		err = unix.Syncfs(int(f.Fd()))
		f.Close()
		if err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}

// dirs are the directories that the engine keeps images in; none if they are not on
// this machine or cannot be reached.
func (e *Engine) dirs(ctx context.Context) ([]string, error) {
	root, err := e.root(ctx)
	if err != nil || root == "" {
		return nil, err
	}
	dirs := []string{root}
	if ctd, err := e.containerd(ctx); err != nil || !ctd {
		return dirs, err
	}
	places := []string{filepath.Join(root, "containerd"), "/var/lib/containerd"}
	if roots, err := e.containerdRoots(ctx); err == nil && len(roots) > 0 {
		places = slices.Collect(maps.Values(roots))
	}
	for _, dir := range places { // some are made at their first use
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// isKnownBy reports whether a digest is of the image's config or manifest, or the engine's
// ID of it.
func (img Image) isKnownBy(d digest.Digest) bool {
	return d == img.Config || d.String() == img.ID ||
		slices.ContainsFunc(img.Tags, func(t string) bool { return imagestore.IsManifestRef(t, d) })
}

// named finds the image that a reference means, and what to call it for `docker save`. The
// shell reference ran that with the tag: with the ID, the archive would have no tag, and its
// bytes would differ. So it is for an image that the manifests name by its digest: that has
// no tag.
func (e *Engine) named(ctx context.Context, ref string) (img Image, called string, err error) {
	ref, want := submodules.SplitURL(ref)
	img, err = e.Inspect(ctx, ref)
	if err == nil && want != "" && !img.isKnownBy(want) {
		err = imagestore.OtherImage(ref, want, img.Config)
	}
	if want == "" || !errors.Is(err, submodules.ErrNotFound) {
		return img, ref, err
	}
	all, lerr := e.all(ctx)
	if lerr != nil {
		return Image{}, "", lerr
	}
	if i := slices.IndexFunc(all, func(img Image) bool { return img.isKnownBy(want) }); i >= 0 {
		return all[i], all[i].ID, nil
	}
	return Image{}, "", err
}
