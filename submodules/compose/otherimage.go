package compose

import (
	"context"
	"slices"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// component returns the release's component that a service calls ref.
func (s *session) component(ref string) (submodules.Component, bool) {
	bare, _ := submodules.SplitURL(ref)
	i := slices.IndexFunc(s.req.Components, func(c submodules.Component) bool {
		return c.Type == "image" && c.Digest != "" && (c.URL == ref || image.SameRef(c.URL, bare))
	})
	if i < 0 {
		return submodules.Component{}, false
	}
	return s.req.Components[i], true
}

// otherImage says that a running container was not made from the image that the release has
// for its service; "" if it was, or if nobody can tell. Docker Compose believes the labels of
// a container, which anybody may give to another image.
func (s *session) otherImage(ctx context.Context, services model, c container.InspectResponse) string {
	comp, ok := s.component(services.Services[serviceOf(c)].Image)
	if !ok || c.State == nil || !c.State.Running {
		return ""
	}
	want, err := imagestore.ParseIdentity(comp)
	if err != nil {
		return ""
	}
	has, err := s.engine.Inspect(ctx, c.Image)
	if err != nil || has.Config == "" || has.Known(s.req.App, comp.Digest) {
		return "" // an engine that has lost the image cannot describe it
	}
	// The digest may be that of a manifest, and the name that leads from it to the image gone.
	img, err := s.engine.Find(ctx, s.req.App, want, comp.URL)
	if err == nil && img.Config == has.Config || err != nil && (want.DiffIDs == nil || slices.Equal(want.DiffIDs, has.DiffIDs)) {
		return ""
	}
	return "runs another image than the release's " + comp.URL
}
