package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Manifests is the manifests payload of an artifact that is checked.
type Manifests struct {
	Open    func() (io.Reader, error) // nil: it is not there
	Lacking string                    // why, then
}

// Check makes the checks of a download, all of them and not only up to the first
// that fails, and asks the sub-module what the release would change. It takes no lock
// and changes nothing.
func (e *Engine) Check(ctx context.Context, name string, meta *artifact.Metadata, manifests Manifests) (*Forecast, error) {
	f := &Forecast{Application: meta.ApplicationName, ArtifactName: name, Version: meta.ApplicationVersion, Sizes: meta.Sizes}
	p := &preflight{e: e, h: &header{Artifact: name, Meta: meta}, unlocked: true}
	missing := ""
	for _, step := range p.steps() {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case missing != "":
			f.Skip(step.name, missing+" failed")
		case !f.Add(step.name, step.run(ctx)) && step.needed:
			missing = step.name
		}
	}
	f.Add("no open deployment", e.checkOpen(meta.ApplicationName))
	f.First = p.members
	if st := p.h.Statement; st != nil {
		f.Expires, f.Signatures = st.Expires, st.Signatures()
	}
	if p.resolved != nil {
		f.Sizes = p.resolved.Meta.Sizes
		for _, c := range p.resolved.Content {
			f.Fetched += c.Size
		}
	}
	const what = "manifests"
	switch {
	case missing != "":
		f.Skip(what, missing+" failed")
	case manifests.Open == nil:
		f.Skip(what, manifests.Lacking)
	default:
		err := p.checkRelease(ctx, f, manifests.Open)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var lacking *LackingError
		if errors.As(err, &lacking) {
			f.Skip(what, err.Error())
		} else {
			f.Add(what, err)
		}
	}
	f.Time(e.Store)
	return f, nil
}

// checkOpen refuses an application with an open deployment.
func (e *Engine) checkOpen(name string) error {
	if e.Store.Legacy(name) {
		return nil
	}
	a, err := e.Store.App(name)
	if errors.Is(err, store.ErrNoApp) {
		return nil
	}
	if err == nil && a.Deployment != nil {
		err = fmt.Errorf("%s is in the phase %s, and the next update would undo it: commit it, or roll it back", a.Deployment.ArtifactName, a.Deployment.Phase)
	}
	return err
}

// checkRelease unpacks the manifests outside of the store, and lets the sub-module
// check them.
func (p *preflight) checkRelease(ctx context.Context, f *Forecast, manifests func() (io.Reader, error)) error {
	dir, remove, err := p.unpackOutside(manifests)
	if err != nil {
		return err
	}
	defer remove()
	if !p.t.info.Has(submodules.FeatureCheck) {
		return &LackingError{Submodule: p.t.r.Orchestrator, Feature: submodules.FeatureCheck}
	}
	req := p.t.request()
	req.Dir, req.Components = dir, forSubmodule(releaseComponents(p.resolved.Meta.Components))
	changes, err := p.t.client().Check(ctx, req)
	if err != nil {
		return err
	}
	f.Changes = &changes
	return nil
}

// unpackOutside unpacks the manifests outside of the store, until remove is called.
func (p *preflight) unpackOutside(manifests func() (io.Reader, error)) (dir string, remove func(), err error) {
	tmp, err := scratch.Dir("", scratch.Prefix)
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = scratch.Remove(tmp) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	dir = filepath.Join(tmp, p.t.app, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	in, err := manifests()
	if err != nil {
		return "", nil, err
	}
	digest, err := artifact.ReadManifests(in, root, p.h.ManifestLimits())
	if err != nil {
		return "", nil, err
	}
	return dir, remove, p.h.CheckManifests(digest)
}

// CheckRestore refuses a restore of an application that is not installed if there is data
// where that of the backup belongs, as after a purge that kept it. The error names all of
// it. Nothing is changed.
func (e *Engine) CheckRestore(ctx context.Context, meta *artifact.Metadata, manifests func() (io.Reader, error), places []appdata.Place) error {
	if len(places) == 0 {
		return nil
	}
	p := &preflight{e: e, h: &header{Meta: meta}, unlocked: true}
	if err := p.find(ctx); err != nil {
		return err
	}
	if !p.t.info.Has(submodules.FeatureData) {
		return nil // the installation says so
	}
	dir, remove, err := p.unpackOutside(manifests)
	if err != nil {
		return err
	}
	defer remove()
	req := p.t.request()
	req.Dir = dir
	volumes, err := p.t.client().Volumes(ctx, submodules.VolumesRequest{Request: req})
	if err != nil {
		return err
	}
	var full []string
	for _, place := range places {
		what, at := place.Dir, place.Dir
		if place.Volume != "" {
			what = "volume " + place.Volume
			for _, v := range volumes {
				if v.Name == place.Volume {
					at = v.Dir
				}
			}
		}
		empty, err := appdata.IsEmpty(at)
		if err != nil {
			return err
		}
		if !empty && what != at {
			what += " (" + at + ")"
		}
		if !empty {
			full = append(full, what)
		}
	}
	if full == nil {
		return nil
	}
	do := "remove what is in it"
	if e.mayBeLeft(p.t.app, true) {
		do = "mender-app purge --data " + p.t.app + " removes it"
	}
	return unfit("there is data of %s, and nothing is overwritten: %s: %s", p.t.app, strings.Join(full, ", "), do)
}
