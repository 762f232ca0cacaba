package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file reads what another update module left of an application that was not
// adopted yet: the shell reference, or mender-container-modules. It changes nothing.
// It must not know artifacts, deployments or releases.

// ErrNothingToVerify: nothing shows which components an application has.
var ErrNothingToVerify = errors.New("nothing to verify")

// LegacyModule is the part of a sub-module that is called here.
type LegacyModule interface {
	Describe(ctx context.Context) (submodules.Info, error)
	List(ctx context.Context, r submodules.Request) ([]submodules.Component, error)
	Verify(ctx context.Context, r submodules.Request) ([]string, error)
}

// legacyRequest asks for what a sub-module has of an application.
func legacyRequest(s *store.Store, name string) submodules.Request {
	return submodules.Request{App: name, Dir: filepath.Join(s.Dir(), name, "manifests")}
}

// legacyComponents are those of an application that is adopted: urls are the names in its
// files, and known is what the sub-module lists. The shell reference has a list of
// all names. mender-container-modules has none, and names in manifests may have
// variables: with all, everything that the sub-module knows counts.
func legacyComponents(urls []string, known []submodules.Component, all bool) (list []store.Component) {
	byURL := map[string]store.Component{}
	for _, c := range known {
		typ := artifact.ComponentImage
		if names.CheckType(c.Type) == nil {
			typ = c.Type
		}
		byURL[c.URL] = store.Component{Type: typ, URL: c.URL, Digest: c.Digest, DiffIDs: c.DiffIDs}
		if all {
			list = append(list, byURL[c.URL])
		}
	}
	for _, url := range urls {
		c, ok := byURL[url]
		switch {
		case !ok:
			list = append(list, store.Component{Type: artifact.ComponentImage, URL: url})
		case !all:
			list = append(list, c)
		}
	}
	return list
}

// LegacyDamage is one damaged or missing part of a component.
type LegacyDamage struct {
	Component submodules.Component
	Text      string
}

// Deadlines of the calls. VERIFY reads whole images.
const (
	legacyListTimeout   = 10 * time.Minute
	legacyVerifyTimeout = 3 * time.Hour
)

// VerifyLegacy reads the components of an application, and returns what is damaged. Only
// what its containers use is known. orchestrators are those that may run it, where
// the store does not know which does. It needs no lock.
func VerifyLegacy(ctx context.Context, s *store.Store, name string, orchestrators []string, find func(string) (LegacyModule, error)) ([]LegacyDamage, error) {
	if o := s.LegacyOrchestrator(name); o != "" {
		orchestrators = []string{o}
	}
	var failed []error
	for _, orchestrator := range orchestrators {
		o, list, err := askLegacy(ctx, legacyRequest(s, name), orchestrator, find)
		if err != nil {
			failed = append(failed, err)
		}
		if len(list) > 0 {
			return verifyLegacy(ctx, o, name, list)
		}
	}
	if len(failed) > 0 {
		return nil, errors.Join(failed...)
	}
	return nil, fmt.Errorf("%w: %s is not adopted yet, and no container shows which images it has: start it, or install an artifact for it", ErrNothingToVerify, name)
}

// askLegacy asks a sub-module that can verify for what it has of the application.
func askLegacy(ctx context.Context, r submodules.Request, orchestrator string, find func(string) (LegacyModule, error)) (LegacyModule, []submodules.Component, error) {
	ctx, cancel := context.WithTimeout(ctx, legacyListTimeout)
	defer cancel()
	o, err := find(orchestrator)
	if err != nil {
		return nil, nil, err
	}
	info, err := o.Describe(ctx)
	if err != nil || !info.Has(submodules.FeatureVerify) || !info.Has(submodules.FeatureComponents) {
		return nil, nil, err
	}
	list, err := o.List(ctx, r)
	return o, list, err
}

func verifyLegacy(ctx context.Context, o LegacyModule, name string, list []submodules.Component) (bad []LegacyDamage, err error) {
	ctx, cancel := context.WithTimeout(ctx, legacyVerifyTimeout)
	defer cancel()
	for _, c := range list {
		problems, err := o.Verify(ctx, submodules.Request{App: name, Components: []submodules.Component{c}})
		if err != nil {
			return nil, err
		}
		for _, text := range problems {
			bad = append(bad, LegacyDamage{c, text})
		}
	}
	return bad, nil
}
