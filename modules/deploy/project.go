package deploy

import (
	"cmp"
	"context"
	"io"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/composemodule"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// projectImages loads the images of an artifact of mender-container-modules, which
// its metadata does not name.
func (l *loader) projectImages(ctx context.Context, r io.Reader, tmp string, room int64) error {
	if !l.info.Has(submodules.FeatureStage) {
		return unfit("sub-module %s cannot load beside what runs: make the artifact with app-gen", l.r.Orchestrator)
	}
	return composemodule.ReadImages(r, tmp, room, func(i composemodule.Image) error {
		var names []store.Component
		for _, url := range i.URLs {
			names = append(names, store.Component{Type: artifact.ComponentImage, URL: url, Digest: i.Digest})
		}
		l.r.Components = append(l.r.Components, names...)
		if err := cmp.Or(ctx.Err(), l.a.PutRelease(l.r)); err != nil {
			return err
		}
		return l.loadNames(ctx, names, i.Bytes, submodules.Request{Path: i.Path, Options: l.stage()})
	})
}
