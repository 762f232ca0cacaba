package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/deploy/files"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// A delta of a file is applied here, for no sub-module needs to know how: SAVE
// writes the current file, the delta makes the new one of it, and LOAD gets that
// after its digest was compared. All of it lies in a temporary directory of the
// store. The next call removes what a kill leaves there.

// rebuilds reports whether the delta of a component is applied here. Of an image
// that is so where the sub-module cannot apply it and does not verify images: the
// shell reference's sub-modules.
func (l *loader) rebuilds(c store.Component, kind artifact.Kind) bool {
	switch {
	case kind == artifact.KindFull:
		return false
	case files.Is(c):
		return true
	}
	return kind == artifact.KindReferenceDelta && l.nameless() && !l.info.Has(submodules.FeatureVcdiff)
}

// rebuildAndLoad makes a file of the one on the device and a delta, and loads it
// under each of its names.
func (l *loader) rebuildAndLoad(ctx context.Context, info artifact.ImageInfo, names []store.Component, content io.Reader) error {
	tmp, err := l.e.temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	patch, path := filepath.Join(tmp, "delta"), filepath.Join(tmp, "image")
	if err := files.Spool(patch, content, info.Size); err != nil {
		return err
	}
	base, size := files.Base(l.a, l.h.meta, info, names[0])
	old, err := l.oldFile(ctx, base, tmp)
	if err != nil {
		return err
	}
	l.e.Log.Info("applying a delta", "app", l.app, "component", names[0].URL, "base", base.URL)
	if err := durable.Point("rebuild.file"); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, l.deadline(submodules.VerbLoad))
	defer cancel()
	if err := files.Make(within, old, base.Digest, patch, path, size); err != nil {
		return err
	}
	if err := durable.Point("rebuilt.file"); err != nil {
		return err
	}
	// They need not lie there while the sub-module works.
	for _, done := range []string{patch, filepath.Join(tmp, "old")} {
		if err := os.RemoveAll(done); err != nil {
			return err
		}
	}
	typ, err := files.CheckContent(names[0], path, l.nameless())
	if err != nil {
		return err
	}
	if err := l.setType(names[0], typ); err != nil {
		return err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	req := submodules.Request{Path: path}
	if l.info.Has(submodules.FeatureStage) {
		req.Options = append(req.Options, submodules.OptionStage)
	}
	return l.loadNames(ctx, names, fi.Size(), req)
}

// oldFile returns a path of the file that a delta builds on: a release's copy of
// it, or else what SAVE writes into the directory tmp. Its digest is compared with
// the one that the artifact or the release before has, if any.
func (l *loader) oldFile(ctx context.Context, base artifact.Base, tmp string) (string, error) {
	path, err := files.CopyOf(l.a, base)
	if err != nil {
		return "", err
	}
	if path == "" {
		path = filepath.Join(tmp, "old")
		was, ok := files.Current(l.a, base.URL)
		if !ok {
			was = store.Component{Type: files.Unknown, URL: base.URL, Digest: base.Digest}
		}
		req := l.only(was).request()
		req.URL, req.Path = base.URL, path
		if err := l.call(ctx, submodules.VerbSave, req, l.o.Save); err != nil {
			if errors.Is(err, submodules.ErrNotFound) {
				err = submodules.Mark(fmt.Errorf("the delta needs %s, which is not there: install the full artifact", base.URL), submodules.ErrBase)
			}
			return "", err
		}
	}
	if base.Digest == "" {
		return path, nil
	}
	sum, err := files.Sum(path)
	if err != nil {
		return "", err
	}
	if sum != base.Digest {
		return "", submodules.Mark(fmt.Errorf("%s is %s on this device, and the delta needs %s: install the full artifact", base.URL, sum, base.Digest), submodules.ErrBase)
	}
	return path, nil
}
