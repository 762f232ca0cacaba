package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Load implements submodules.Session.
func (s *session) Load(ctx context.Context, r submodules.LoadRequest) error {
	q, err := imagestore.NewLoadRequest(r)
	if err != nil {
		return err
	}
	q.Xdelta3 = s.set.xdelta3
	if s.set.sandbox {
		dirs, err := s.engine.Storage(ctx)
		if err != nil {
			return err
		}
		q.Confine(ctx, r.Path, imagestore.Process{Old: dirs, Network: !strings.HasPrefix(s.engine.Host(), "unix://")})
	}
	return imagestore.LoadFile(ctx, s.engine.Store(r.TempDir), q, r.Path, r.Stdin)
}

// resolve finds the image that a URL of a request means: by identity where one is
// known.
func (s *session) resolve(ctx context.Context, url string) (docker.Image, error) {
	want, err := imagestore.Wanted(s.req, url)
	if err != nil {
		return docker.Image{}, err
	}
	if want.Config != "" {
		return s.engine.Find(ctx, s.req.App, want, url)
	}
	return s.engine.Inspect(ctx, url)
}

// Save implements submodules.Session.
func (s *session) Save(ctx context.Context, r submodules.SaveRequest) error {
	img, err := s.resolve(ctx, r.URL)
	if err != nil {
		return err
	}
	return r.SaveTo(ctx, func(w io.Writer) error { return s.engine.Save(ctx, img, r.URL, r.TempDir, w) })
}

// additional is the additional_data of a component.
type additional struct {
	Size     int64  `json:"size"` // bytes unpacked
	Used     bool   `json:"used"` // some container was made from it
	Platform string `json:"platform"`
}

// List implements submodules.Session: the images with the application's
// own reference, and those its containers were made from.
func (s *session) List(ctx context.Context, _ submodules.Request) ([]submodules.Component, error) {
	images, err := s.engine.Own(ctx, s.req.App)
	if err != nil {
		return nil, err
	}
	containers, err := s.ours(ctx)
	if err != nil {
		return nil, err
	}
	inUse := map[string][]string{} // image ID → what the manifests call it
	for _, c := range containers {
		if !slices.Contains(inUse[c.ImageID], c.Image) {
			inUse[c.ImageID] = append(inUse[c.ImageID], c.Image)
		}
	}
	have := map[string]bool{}
	images = slices.DeleteFunc(images, func(img docker.Image) bool { // two own references
		again := have[img.ID]
		have[img.ID] = true
		return again
	})
	for id := range inUse {
		if have[id] {
			continue
		}
		img, err := s.engine.Inspect(ctx, id)
		if errors.Is(err, submodules.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	var list []submodules.Component
	for _, img := range images {
		used, err := s.engine.Used(ctx, img)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(additional{Size: img.Size, Used: used, Platform: img.Platform.String()})
		if err != nil {
			return nil, err
		}
		c := submodules.Component{Type: "image", Digest: img.Config, DiffIDs: img.DiffIDs, AdditionalData: data}
		for _, c.URL = range s.urls(img, inUse[img.ID]) {
			list = append(list, c)
		}
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].URL < list[j].URL || list[i].URL == list[j].URL && list[i].Digest < list[j].Digest
	})
	return list, nil
}

// named returns the names that the release has for an image.
func (s *session) named(img docker.Image) (urls []string) {
	for _, c := range s.req.Components {
		if img.Known(s.req.App, c.Digest) {
			urls = append(urls, c.URL)
		}
	}
	return urls
}

// urls returns the names of an image, at least one: those of the release; else the
// tags under which containers run it; else its first tag; else the application's
// name with the image's digest, or what a container says.
func (s *session) urls(img docker.Image, containers []string) []string {
	if urls := s.named(img); len(urls) > 0 {
		return urls
	}
	var urls []string
	for _, name := range containers {
		if slices.ContainsFunc(img.Tags, func(t string) bool { return image.SameRef(t, name) }) {
			urls = append(urls, name)
		}
	}
	if len(urls) > 0 {
		return urls
	}
	for _, t := range img.Tags {
		if !imagestore.IsOwnRef(t) {
			return []string{t}
		}
	}
	if _, ok := img.OwnRef(s.req.App); ok && len(containers) == 0 {
		return []string{s.req.App + "@" + img.Config.String()} // LOAD takes no own reference
	}
	return containers[:1]
}

// Delete implements submodules.Session.
func (s *session) Delete(ctx context.Context, r submodules.DeleteRequest) error {
	img, err := s.resolve(ctx, r.URL)
	if errors.Is(err, submodules.ErrNotFound) {
		// A power cut can leave a name in the containerd store without the image.
		// Our own name for it is of no use to anybody.
		if len(r.Components) != 1 || r.Components[0].Digest == "" {
			return nil
		}
		for _, ref := range []func(string, image.Digest) string{imagestore.OwnRef, imagestore.ManifestRef} {
			if _, err := s.engine.Untag(ctx, ref(r.App, r.Components[0].Digest)); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	ref, _ := submodules.SplitURL(r.URL)
	for _, url := range s.named(img) {
		if other, _ := submodules.SplitURL(url); !image.SameRef(other, ref) {
			return s.engine.DeleteName(ctx, r.App, img, ref)
		}
	}
	return s.delete(ctx, img, ref)
}

// delete removes the application's name of an image, and the image and its tags unless
// somebody uses it.
func (s *session) delete(ctx context.Context, img docker.Image, tags ...string) error {
	users, err := s.engine.Users(ctx, img)
	if err != nil {
		return err
	}
	if len(users) > 0 && len(s.owned(users)) == 0 {
		return s.engine.Disown(ctx, s.req.App, img, users, tags...)
	}
	return s.engine.Delete(ctx, s.req.App, img, tags...)
}

// Verify implements submodules.Session.
func (s *session) Verify(ctx context.Context, _ submodules.Request) ([]string, error) {
	var bad []string
	for _, c := range s.req.Components {
		if c.Type != "image" || c.Digest == "" {
			continue
		}
		id, err := imagestore.ParseIdentity(c)
		if err != nil {
			return nil, err
		}
		img, err := s.engine.Find(ctx, s.req.App, id, c.URL)
		if errors.Is(err, submodules.ErrNotFound) {
			bad = append(bad, fmt.Sprintf("%s: %v", c.URL, err))
			continue
		}
		if err != nil {
			return nil, err
		}
		damages, err := s.engine.Damages(ctx, img)
		if err != nil {
			return nil, err
		}
		for _, d := range damages {
			bad = append(bad, fmt.Sprintf("%s: %s", c.URL, d))
		}
	}
	return bad, nil
}

// Sync implements submodules.Session.
func (s *session) Sync(ctx context.Context, _ submodules.Request) error { return s.engine.Sync(ctx) }
