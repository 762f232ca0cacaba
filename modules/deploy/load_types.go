package deploy

import (
	"context"
	"slices"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// A component of another type than image is a file, and its identity is the SHA-256 of
// the file. It is compared here, before the sub-module gets the file, whatever the
// sub-module verifies itself.

// nameless reports whether the metadata does not say what the components are,
// and the sub-module does not verify them.
func (l *loader) nameless() bool {
	return len(l.header.Meta.Components) == 0 && !l.info.Has(submodules.FeatureComponents)
}

// checkContent compares a component's content at path with its digest, if it is a
// file. It records the component's type, and returns it.
func (l *loader) checkContent(c store.Component, path string) (typ string, err error) {
	if typ, err = checkContent(c, path, l.nameless()); err != nil {
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
	list, err := l.client().List(ctx, l.only(l.r.Components...).request())
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		l.e.Log.Warn("the types of the components are not known", "app", l.a.Name, "error", err)
		return nil
	}
	types := listedTypes(list)
	for _, c := range slices.Clone(l.r.Components) {
		if typ, ok := types[c.URL]; ok {
			if err := l.setType(c, typ); err != nil {
				return err
			}
		}
	}
	return nil
}
