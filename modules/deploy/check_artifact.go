package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/deploy/transition"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`           // one of the constants below
	Detail string `json:"detail,omitempty"` // why, in one line
}

// The results of a check.
const (
	Pass       = "pass"
	Fail       = "fail"
	NotChecked = "not checked" // another check failed that it builds on, or it cannot be made here
)

// Forecast is what Check says of an artifact.
type Forecast struct {
	Application  string    `json:"application"`
	ArtifactName string    `json:"artifact_name"`
	Version      string    `json:"application_version,omitempty"`
	Findings     []Finding `json:"findings"`
	// Changes is nil if the sub-module was not asked.
	Changes *submodules.Changes `json:"changes,omitempty"`
	// Sizes is what the metadata announces, with the variants that fit this device.
	Sizes *artifact.Sizes `json:"sizes,omitempty"`
	// Seconds is the median time from the beginning to a healthy release, of the
	// Basis newest installations of the application here; 0 without any.
	Seconds float64 `json:"seconds,omitempty"`
	Basis   int     `json:"basis,omitempty"`
}

// Add adds a finding; err says why it failed.
func (f *Forecast) Add(check string, err error) bool {
	found := Finding{Check: check, Result: Pass}
	if err != nil {
		found.Result = Fail
		found.Detail = strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), ErrUnfit.Error()+": ")
	}
	f.Findings = append(f.Findings, found)
	return err == nil
}

func (f *Forecast) skip(check, why string) {
	f.Findings = append(f.Findings, Finding{check, NotChecked, why})
}

// Refused returns an ErrUnfit that names the failed checks, nil if there is none.
func (f *Forecast) Refused() error {
	var failed []string
	for _, c := range f.Findings {
		if c.Result == Fail {
			failed = append(failed, c.Check)
		}
	}
	if failed == nil {
		return nil
	}
	return unfit("%s would not be installed: %s", f.ArtifactName, strings.Join(failed, ", "))
}

// Check makes the checks of a download, all of them and not only up to the first
// that fails, and asks the sub-module what the release would change. It takes no lock
// and changes nothing. manifests returns the artifact's manifests payload; nil if it
// is not at hand.
func (e *Engine) Check(ctx context.Context, name string, meta *artifact.Metadata, manifests func() (io.Reader, error)) (*Forecast, error) {
	f := &Forecast{Application: meta.ApplicationName, ArtifactName: name, Version: meta.ApplicationVersion, Sizes: meta.Sizes}
	p := &preflight{e: e, h: &header{artifact: name, meta: meta}, unlocked: true}
	missing := ""
	for _, step := range p.steps() {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case missing != "":
			f.skip(step.name, missing+" failed")
		case !f.Add(step.name, step.run(ctx)) && step.needed:
			missing = step.name
		}
	}
	f.Add("no open deployment", e.checkOpen(meta.ApplicationName))
	if p.resolved != nil {
		f.Sizes = p.resolved.meta.Sizes
	}
	const what = "manifests"
	switch {
	case missing != "":
		f.skip(what, missing+" failed")
	case manifests == nil:
		f.skip(what, "they are not at hand: check the file")
	default:
		err := p.checkRelease(ctx, f, manifests)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var lacking *lackingError
		if errors.As(err, &lacking) {
			f.skip(what, err.Error())
		} else {
			f.Add(what, err)
		}
	}
	records, err := e.Store.History(meta.ApplicationName)
	if err == nil {
		f.Seconds, f.Basis = pastSeconds(records)
	}
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

// lackingError: the sub-module lacks a feature.
type lackingError struct{ name, feature string }

func (e *lackingError) Error() string {
	return fmt.Sprintf("the sub-module %s does not have the feature %s", e.name, e.feature)
}

// checkRelease unpacks the manifests outside of the store, and lets the sub-module
// check them.
func (p *preflight) checkRelease(ctx context.Context, f *Forecast, manifests func() (io.Reader, error)) error {
	tmp, err := os.MkdirTemp("", "mender-app-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, p.t.app, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in, err := manifests()
	if err != nil {
		return err
	}
	var limits artifact.ManifestLimits
	if s := p.h.meta.Sizes; s != nil {
		limits.MaxBytes = s.ManifestsPayload
	}
	digest, err := artifact.ReadManifests(in, root, limits)
	if err != nil {
		return err
	}
	if err := p.h.checkManifests(digest); err != nil {
		return err
	}
	if !p.t.info.Has(submodules.FeatureCheck) {
		return &lackingError{p.t.r.Orchestrator, submodules.FeatureCheck}
	}
	req := p.t.request()
	req.Dir, req.Components = dir, []submodules.Component{}
	for _, c := range p.resolved.meta.Components {
		req.Components = append(req.Components, components([]store.Component{componentOf(c)})...)
	}
	var changes submodules.Changes
	if err := p.t.call(ctx, submodules.VerbCheck, req, into(&changes, p.t.o.Check)); err != nil {
		return err
	}
	f.Changes = &changes
	return nil
}

// maxBasis is how many installations a forecast of the time looks at.
const maxBasis = 5

// pastSeconds is the median time that the newest installations took until the new
// release was healthy, and how many there were. Records of a clock that was set back
// do not count.
func pastSeconds(records []store.Record) (seconds float64, n int) {
	var took []time.Duration
	for _, r := range slices.Backward(records) {
		i := slices.IndexFunc(r.Steps, func(s store.Step) bool { return s.Phase == string(transition.Installed) })
		if r.Status != store.StatusInstalled || i < 0 {
			continue
		}
		if d := r.Steps[i].At.Sub(r.Started); d > 0 {
			took = append(took, d)
		}
		if len(took) == maxBasis {
			break
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2].Seconds(), len(took)
}
