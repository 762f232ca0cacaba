package deploy

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file loads images that the payload does not have. It begins when the payload has
// ended: the client that reads it from a server does not wait then.

// slack is how much a file with one image may have beside its content: headers of tars,
// and the texts that describe it.
const slack = 64 << 10

// fetch loads the images that are outside of the payload, one after the other. What was
// fetched of one is removed when the next is fetched, and at the end.
func (l *loader) fetch(ctx context.Context) error {
	for _, c := range l.header.Meta.Components {
		content, apart := l.header.Content[c.Digest]
		if l.loaded[c.Digest] || !apart && !l.preloaded(c) {
			continue
		}
		var err error
		if apart {
			err = l.fetchImage(ctx, c, content)
		} else {
			err = l.namePreloaded(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("component %s: %w", c.URL, err)
		}
	}
	if l.e.Content == nil || !slices.Contains(l.header.Meta.Requires, artifact.FeatureContent) {
		return nil
	}
	return l.e.Content.Drop()
}

// preloaded reports whether an image that is outside of the payload was loaded when the
// artifact was staged.
func (l *loader) preloaded(c artifact.Component) bool {
	return slices.Contains(l.header.Meta.Requires, artifact.FeatureContent) && l.oldContent().isLoaded(c)
}

// namePreloaded gives an image that is loaded the names of the release.
func (l *loader) namePreloaded(ctx context.Context, c artifact.Component) error {
	names, _, err := l.identify(artifact.ImageInfo{Digest: c.Digest, URLNew: c.URL, URLCurrent: c.URL})
	if err != nil {
		return err
	}
	return l.loadNames(ctx, names, 0, submodules.LoadRequest{Path: os.DevNull, Stage: l.stages()})
}

// fetchImage fetches one image and loads it.
func (l *loader) fetchImage(ctx context.Context, c artifact.Component, content artifact.Content) error {
	l.e.Log.Info("fetching", "app", l.app, "component", c.URL, "content", content.Digest.Hex(), "bytes", content.Size)
	f, err := l.e.Content.Fetch(ctx, content, l.header.Meta.ContentSources)
	if err != nil {
		return fmt.Errorf("fetch its content: %w", err)
	}
	defer f.Close()
	if d := l.a.Deployment; d != nil && !l.imagesOnly {
		journal.Measured(d).Received += content.Size
	}
	err = l.readImages(ctx, f, c.PayloadBytes+slack, func(d image.Digest) error {
		if d != c.Digest {
			return fmt.Errorf("%w: the content is of %s", artifact.ErrPayload, d)
		}
		return nil
	})
	if err == nil && !l.loaded[c.Digest] {
		err = fmt.Errorf("%w: the content has no image", artifact.ErrPayload)
	}
	return err
}

// dropContent removes what an update that failed has fetched: when another has succeeded,
// and when an application goes. Until then the same update goes on with it.
func (e *Engine) dropContent(a *store.App) {
	if e.Content == nil {
		return
	}
	if err := e.Content.Drop(); err != nil {
		e.Log.Warn("what was fetched could not be removed", "app", a.Name, "error", err)
	}
}
