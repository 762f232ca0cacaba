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
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// LoadSpec says what to load, and what it must be.
type LoadSpec struct {
	App      string
	URL      string // what the image is called in the application's manifests
	Stage    bool   // leave the tag URL where it is
	Want     imagestore.Identity
	Platform image.Platform
	Current  string         // old image of a delta
	Base     []image.Digest // its layers, base first, where they are known
	Deep     bool
	Distrust bool // what is present may be damaged: verify it, load it again
	TempDir  string
}

// own is the application's own reference to what is loaded.
func (s LoadSpec) own(config image.Digest) string {
	if s.Want.Config != "" && s.Want.Config != config {
		return imagestore.ManifestRef(s.App, s.Want.Config)
	}
	return imagestore.OwnRef(s.App, config)
}

// Load brings an image in under the application's own reference, and under URL
// unless it is staged. It is verified against Want and its own config before
// the engine makes an image of it, and the engine's result again afterwards. An
// image that is there already moves no content.
func (e *Engine) Load(ctx context.Context, s LoadSpec, r io.Reader) error {
	distrust := s.Distrust
	if s.Want.Config != "" && !distrust {
		img, err := e.Find(ctx, s.App, s.Want, s.URL)
		distrust = err == nil && img.broken != nil
	}
	if distrust {
		if err := e.suspect(ctx, s); err != nil {
			return fmt.Errorf("load image %s: %w", s.URL, err)
		}
	}
	if s.Want.Config != "" {
		img, err := e.Find(ctx, s.App, s.Want, s.URL)
		if err == nil {
			e.log(fmt.Sprintf("image %s is present already", img.Config))
			if err := checkPlatform(img, s.Platform); err != nil {
				return err
			}
			return e.name(ctx, img, s)
		}
		if !errors.Is(err, submodules.ErrNotFound) {
			return err
		}
	}
	return e.receive(ctx, target{e, s.TempDir}, s, r)
}

// receive brings content in through t, and takes back what is not whole.
func (e *Engine) receive(ctx context.Context, t imagestore.Target, s LoadSpec, r io.Reader) error {
	in := imagestore.Incoming{
		Tag:       s.own,
		Want:      s.Want,
		Manifests: true,
		Platform:  s.Platform,
		Current:   s.Current,
		Base:      s.Base,
		Deep:      s.Deep,
		TempDir:   s.TempDir,
		Log:       func(format string, args ...any) { e.log(fmt.Sprintf(format, args...)) },
	}
	id, loaded, err := imagestore.Receive(ctx, t, r, in)
	if err != nil {
		err = fmt.Errorf("load image %s: %w", s.URL, err)
		if id.Config == "" {
			return err
		}
		// It was not there before. The containerd store names an image that it
		// could not unpack (28.5).
		return errors.Join(err, e.takeBack(ctx, s.own(id.Config)))
	}
	if !loaded {
		e.log(fmt.Sprintf("image %s is present already", id.Config))
		img, err := e.Find(ctx, s.App, id, s.URL)
		if err != nil {
			return err
		}
		return e.name(ctx, img, s)
	}
	own := s.own(id.Config)
	img, err := e.Inspect(ctx, own)
	if err == nil && img.broken != nil {
		err = img.broken
	} else if err == nil && !img.is(id) {
		err = submodules.Mark(fmt.Errorf("load image %s: the engine made the image with config %s and %d layers of what is the image with config %s and %d layers",
			s.URL, img.Config, len(img.DiffIDs), id.Config, len(id.DiffIDs)), submodules.ErrContent)
	}
	if err != nil {
		// What is wrong goes again, and its reference with it.
		return errors.Join(err, e.takeBack(ctx, own))
	}
	return e.name(ctx, img, s)
}

// takeBack removes a reference that a failed load may have made, and with it
// its image, also when the call is given up. An engine that is gone has none.
func (e *Engine) takeBack(ctx context.Context, own string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, err := e.Untag(ctx, own)
	if client.IsErrConnectionFailed(err) {
		return nil
	}
	return err
}

func checkPlatform(img Image, want image.Platform) error {
	if want != (image.Platform{}) && want.Match(img.Platform) == image.NoFit {
		return submodules.Mark(fmt.Errorf("image %s is for %s, the release for %s", img.Config, img.Platform, want), submodules.ErrContent)
	}
	return nil
}

// name gives an image its references.
func (e *Engine) name(ctx context.Context, img Image, s LoadSpec) error {
	if err := e.Tag(ctx, img, s.own(img.Config)); err != nil {
		return err
	}
	ref, digest := submodules.SplitURL(s.URL)
	if s.Stage || ref == "" || digest != "" && !strings.Contains(filepath.Base(ref), ":") {
		return nil
	}
	return e.Tag(ctx, img, ref)
}

// target is the engine as imagestore sees it.
type target struct {
	e       *Engine
	tempDir string
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
// a layer if it has the whole chain up to it, whichever image brought it. The
// containerd store needs none whose blob it holds, under the name of that blob.
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
	// A layer that comes again above what is present must be in the archive.
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
	// The reference ran `docker save` with the tag; by the ID the archive would
	// have none, and other bytes.
	ref, want := submodules.SplitURL(ref)
	img, err := t.e.Inspect(ctx, ref)
	if err != nil {
		return nil, 0, err
	}
	known := slices.ContainsFunc(img.Tags, func(t string) bool { return imagestore.IsManifestRef(t, image.Digest(want)) })
	if want != "" && want != string(img.Config) && want != img.ID && !known {
		return nil, 0, imagestore.OtherImage(ref, want, img.Config)
	}
	name, err := t.e.spool(ctx, ref, t.tempDir)
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

// readLoad reads the reply, JSON documents one after another. The engine says
// 200 and puts errors there.
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

// loadError says what the engine's words mean, as far as a caller cares.
func loadError(err error) error {
	err = fmt.Errorf("docker load: %w", err)
	if strings.Contains(err.Error(), "no space left on device") {
		return submodules.Mark(err, submodules.ErrSpace)
	}
	return err
}

// Sync returns when everything the engine has been given is on the disk:
// engines do not sync the files they unpack (20.10 to 28.5, seen with strace).
// Where the data root is not on this machine, the caller is told so in the log.
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

// dirs are the directories that the engine keeps images in; none where they are
// not on this machine or out of reach.
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
	for _, dir := range places { // some are made when they are first used
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}
