package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/modules/deploy/calls"
	"github.com/mender-app/mender-app/modules/deploy/files"
	"github.com/mender-app/mender-app/modules/deploy/taken"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// A component of another type than image is a file, and its identity is the
// SHA-256 of the file. It is compared here, before the sub-module gets the file,
// whatever the sub-module verifies itself.

// nameless reports whether the metadata does not say what the components are,
// and the sub-module does not verify them.
func (l *loader) nameless() bool {
	return len(l.h.Meta.Components) == 0 && !l.info.Has(submodules.FeatureComponents)
}

// checkContent compares a component's content at path with its digest, if it is a
// file. It records the component's type, and returns it.
func (l *loader) checkContent(c store.Component, path string) (typ string, err error) {
	if typ, err = files.CheckContent(c, path, l.nameless()); err != nil {
		return "", err
	}
	return typ, l.setType(c, typ)
}

// setType records the type of a component of the release.
func (l *loader) setType(c store.Component, typ string) error {
	if c.Type == typ {
		return nil
	}
	for i := range l.r.Components {
		if r := &l.r.Components[i]; r.URL == c.URL && r.Digest == c.Digest {
			r.Type = typ
		}
	}
	return l.a.PutRelease(l.r)
}

// askTypes asks the sub-module for the types of the components of an artifact
// that does not say them. What it does not say stays as it is.
func (l *loader) askTypes(ctx context.Context) error {
	if !l.nameless() || len(l.r.Components) == 0 {
		return nil
	}
	var list []submodules.Component
	if err := l.call(ctx, submodules.VerbList, l.request(), calls.Into(&list, l.o.List)); err != nil {
		if ctx.Err() != nil {
			return err
		}
		l.e.Log.Warn("the types of the components are not known", "app", l.app, "error", err)
		return nil
	}
	types := files.Types(list)
	for _, c := range slices.Clone(l.r.Components) {
		if typ, ok := types[c.URL]; ok {
			if err := l.setType(c, typ); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifySaved verifies one component of a sub-module without the feature verify:
// SAVE writes it, and its SHA-256 is compared. It needs the lock.
func (t *target) verifySaved(ctx context.Context, c store.Component) (problems []string, err error) {
	tmp, err := t.e.temp()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	path := filepath.Join(tmp, "component")
	req := t.only(c).request()
	req.URL, req.Path = c.URL, path
	err = t.call(ctx, submodules.VerbSave, req, t.o.Save)
	if errors.Is(err, submodules.ErrNotFound) {
		return []string{c.URL + ": it is missing"}, nil
	}
	if err != nil {
		return nil, err
	}
	sum, err := files.Sum(path)
	if err != nil || sum == c.Digest {
		return nil, err
	}
	if archive, err := files.IsImageArchive(path); !files.Is(c) && (archive || err != nil) {
		return nil, errors.Join(cannotVerify(t), err) // an image is not the same file each time
	}
	return []string{fmt.Sprintf("%s: it is %s, and should be %s", c.URL, sum, c.Digest)}, nil
}

func cannotVerify(t *target) error {
	return fmt.Errorf("%w: sub-module %s cannot verify", submodules.ErrUsage, t.r.Orchestrator)
}

// restoreNames gives names that the failed release took back to other applications' images
// (package taken). It uses LOAD, which moves no content for a component that is present.
func (e *Engine) restoreNames(ctx context.Context, a *store.App, gone, before *store.Release) error {
	return taken.Restore(ctx, e.Store, e.Log, a.Name, gone, before, func(ctx context.Context, a *store.App, r *store.Release, c store.Component) error {
		t, err := e.targetOf(ctx, a, r)
		if err != nil || !t.info.Has(submodules.FeatureComponents) {
			return err
		}
		e.Log.Info("restoring the name of an image", "app", a.Name, "component", c.URL)
		req := t.only(c).request()
		req.URL, req.Path = c.URL, os.DevNull
		return t.call(ctx, submodules.VerbLoad, req, t.o.Load)
	})
}
