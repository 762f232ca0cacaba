package deploy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file is what the check of an artifact says before it is installed: the
// result of each check, what the release would change, and how long it would take.

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`           // one of the constants below
	Detail string `json:"detail,omitempty"` // why, in one line
}

// The results of a check.
const (
	ResultPass       = "pass"
	ResultFail       = "fail"
	ResultNotChecked = "not checked" // another check failed that it builds on, or it cannot be made here
)

// Forecast is the result of an artifact's check.
type Forecast struct {
	Application  string    `json:"application"`
	ArtifactName string    `json:"artifact_name"`
	Version      string    `json:"application_version,omitempty"`
	Findings     []Finding `json:"findings"`
	// First are staged artifacts that would be installed first, and undone together with it.
	First []store.Member `json:"first,omitempty"`
	// Changes is nil if the sub-module was not asked.
	Changes *submodules.Changes `json:"changes,omitempty"`
	// Sizes is what the metadata announces, with the variants that fit this device.
	Sizes *artifact.Sizes `json:"sizes,omitempty"`
	// Fetched are the bytes of images that are outside of the payload.
	Fetched int64 `json:"fetched,omitempty"`
	// Seconds is the median time from the beginning to a healthy release, of the
	// Basis newest installations of the application here that are most like it; 0
	// without any.
	Seconds float64 `json:"seconds,omitempty"`
	Basis   int     `json:"basis,omitempty"`
	// Expires is until when the statement says that the release may be installed; zero if it
	// does not expire. Signatures is how many the statement has.
	Expires    time.Time `json:"expires,omitzero"`
	Signatures int       `json:"signatures,omitempty"`
}

// Add adds a finding; err says why it failed.
func (f *Forecast) Add(check string, err error) bool {
	found := Finding{Check: check, Result: ResultPass}
	if err != nil {
		found.Result = ResultFail
		found.Detail = strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), ErrUnfit.Error()+": ")
	}
	f.Findings = append(f.Findings, found)
	return err == nil
}

// Skip adds a check that was not made, and why.
func (f *Forecast) Skip(check, why string) {
	f.Findings = append(f.Findings, Finding{check, ResultNotChecked, why})
}

// Refused returns a ErrUnfit that names the failed checks, nil if there is none.
func (f *Forecast) Refused() error {
	var failed []string
	for _, c := range f.Findings {
		if c.Result == ResultFail {
			failed = append(failed, c.Check)
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %s would not be installed: %s", ErrUnfit, f.ArtifactName, strings.Join(failed, ", "))
}

// LackingError: the sub-module lacks a feature that a check needs.
type LackingError struct{ Submodule, Feature string }

func (e *LackingError) Error() string {
	return fmt.Sprintf("the sub-module %s does not have the feature %s", e.Submodule, e.Feature)
}

// maxBasis is how many installations a forecast of the time looks at.
const maxBasis = 5

// Time says how long the installation would take, by what the history says of earlier
// ones. Those count that are most like it: updates, or first installations, of about as
// many bytes; without any, those of any size, and then all. Records of a clock that was set
// back do not count.
func (f *Forecast) Time(s *store.Store) {
	records, err := s.History(f.Application)
	if err != nil {
		return // the next deployment begins another one
	}
	a, err := s.App(f.Application)
	update := err == nil && a.Current != ""
	var bytes int64
	if f.Sizes != nil {
		bytes = f.Sizes.ImagesPayload + f.Sizes.ManifestsPayload
	}
	bytes += f.Fetched
	kind := func(r *store.Record) bool { return update == (r.From != "") }
	size := func(r *store.Record) bool {
		return r.Measured != nil && r.Measured.Received <= 2*bytes && bytes <= 2*r.Measured.Received
	}
	for _, like := range []func(*store.Record) bool{
		func(r *store.Record) bool { return kind(r) && size(r) },
		kind,
		func(*store.Record) bool { return true },
	} {
		if took := pastTimes(records, like); len(took) > 0 {
			slices.Sort(took)
			f.Seconds, f.Basis = took[len(took)/2].Seconds(), len(took)
			return
		}
	}
}

// pastTimes is how long the newest installations took, of those that are like another one. One
// that a person took back afterwards counts too.
func pastTimes(records []store.Record, like func(*store.Record) bool) (took []time.Duration) {
	for _, r := range slices.Backward(records) {
		i := slices.IndexFunc(r.Steps, func(s store.Step) bool { return s.Phase == journal.Installed })
		if r.Status != store.StatusInstalled && r.Status != store.StatusRolledBack || i < 0 || !like(&r) {
			continue
		}
		if d := r.Steps[i].At.Sub(r.Started); d > 0 {
			took = append(took, d)
		}
		if len(took) == maxBasis {
			break
		}
	}
	return took
}
