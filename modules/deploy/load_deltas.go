package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/imagedelta"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// A delta that the sub-module cannot apply is applied here: SAVE writes the current
// component, the delta makes the new one of it, and LOAD gets that after it was
// compared with its digests. All of it lies in a temporary directory of the store.
// The next call removes what a kill leaves there.

// rebuilds reports whether the delta of a component is applied here: that of any
// file, and of an image if the sub-module cannot apply it.
func (l *loader) rebuilds(c store.Component, kind artifact.Kind) bool {
	switch {
	case kind == artifact.KindFull:
		return false
	case isFile(c):
		return true
	case kind == artifact.KindDelta:
		return !l.info.Has(submodules.FeatureDelta)
	}
	return kind == artifact.KindReferenceDelta && !l.info.Has(submodules.FeatureVcdiff)
}

// rebuildAndLoad makes a component of those on the device and a delta, and loads it
// under each of its names.
func (l *loader) rebuildAndLoad(ctx context.Context, info artifact.ImageInfo, names []store.Component, content io.Reader) error {
	tmp, err := l.e.Store.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	patch, path := filepath.Join(tmp, "delta"), filepath.Join(tmp, "image")
	if err := spool(patch, content, info.Size); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, l.e.Timeouts.Deadline(submodules.VerbLoad, false))
	defer cancel()
	var used []string // temporary files that need not lie there while the sub-module works
	if !isFile(names[0]) && info.Kind == artifact.KindDelta {
		used, err = l.makeImage(within, names, tmp, patch, path)
	} else {
		used, err = l.makeFile(within, info, names[0], tmp, patch, path)
	}
	if err != nil {
		return err
	}
	if err := durable.Point("rebuilt.component"); err != nil {
		return err
	}
	for _, done := range append(used, patch) {
		if err := os.RemoveAll(done); err != nil {
			return err
		}
	}
	if _, err := l.checkContent(names[0], path); err != nil {
		return err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return l.loadNames(ctx, names, fi.Size(), submodules.LoadRequest{Path: path, Stage: l.stages()})
}

// makeFile applies the delta patch of one file, or of an image archive as one file,
// and writes path. used are temporary files that are not needed any more.
func (l *loader) makeFile(ctx context.Context, info artifact.ImageInfo, c store.Component, tmp, patch, path string) (used []string, err error) {
	base, size := deltaBase(l.a, l.header.Meta, info, c)
	used = []string{filepath.Join(tmp, "old")}
	old, err := l.copyOrSave(ctx, base, used[0])
	if err != nil {
		return nil, err
	}
	if base.Digest != "" {
		sum, err := sumOf(old)
		if err != nil {
			return nil, err
		}
		if sum != base.Digest {
			return nil, submodules.Mark(fmt.Errorf("%s is %s on this device, but the delta needs %s: install the full artifact", base.URL, sum, base.Digest), submodules.ErrBase)
		}
	}
	l.e.Log.Info("applying a delta", "app", l.a.Name, "component", c.URL, "base", base.URL)
	if err := durable.Point("rebuild.component"); err != nil {
		return nil, err
	}
	return used, makeFile(ctx, old, base.Digest, patch, path, size)
}

// makeImage applies the delta patch of an image and writes path. used are temporary
// files that are not needed any more.
func (l *loader) makeImage(ctx context.Context, names []store.Component, tmp, patch, path string) (used []string, err error) {
	l.rebuilt[names[0].Digest] = true
	q := imagedelta.Request{
		Component: forSubmodule(names[:1])[0], Platform: l.r.Platform, Delta: patch, New: path, Temp: tmp,
	}
	q.Component.Bases, q.Component.Announced = announcedBases(l.header.Meta, names[0]), announcedContent(l.header.Meta, names[0])
	for _, c := range names {
		name, _ := submodules.SplitURL(c.URL)
		q.Tags = append(q.Tags, name)
	}
	apply := func(bases []artifact.Base) error {
		for _, base := range bases {
			saved := filepath.Join(tmp, "old-"+strconv.Itoa(len(used)))
			used = append(used, saved)
			old, err := l.copyOrSave(ctx, base, saved)
			if err != nil {
				return err
			}
			q.Archives = append(q.Archives, old)
		}
		l.e.Log.Info("applying a delta", "app", l.a.Name, "component", names[0].URL, "images", len(q.Archives))
		if err := durable.Point("rebuild.component"); err != nil {
			return err
		}
		return makeImage(ctx, q)
	}
	bases, others := l.header.Meta.OldImages(names[0].URL, names[0].Digest, l.loaded)
	err = apply(bases)
	// A layer's delta may also use files of an image that this artifact has brought
	// before. Only the delta itself says of which.
	if errors.Is(err, submodules.ErrBase) && len(others) > 0 {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
		err = apply(others)
	}
	return used, err
}

// copyOrSave returns the path of an older component: a release's copy of it, or else
// path, into which SAVE writes it.
func (l *loader) copyOrSave(ctx context.Context, base artifact.Base, path string) (string, error) {
	copied, err := copyOf(l.a, base)
	if copied != "" || err != nil {
		return copied, err
	}
	was, ok := componentBefore(l.a, base.URL)
	if !ok {
		was = store.Component{Type: unknownType, URL: base.URL, Digest: base.Digest}
	}
	err = l.client().Save(ctx, submodules.SaveRequest{Request: l.only(was).request(), URL: base.URL, Path: path})
	if errors.Is(err, submodules.ErrNotFound) {
		err = submodules.Mark(fmt.Errorf("the delta needs %s, which is missing: install the full artifact", base.URL), submodules.ErrBase)
	}
	return path, err
}
