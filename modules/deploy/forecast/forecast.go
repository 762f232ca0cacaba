// Package forecast is what the check of an artifact says before it is installed: the
// result of each check, what the release would change, and how long it would take.
package forecast

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/deploy/moments"
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

// Forecast is what the check of an artifact says.
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
		found.Detail = strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), moments.ErrRefused.Error()+": ")
	}
	f.Findings = append(f.Findings, found)
	return err == nil
}

// Skip adds a check that was not made, and why.
func (f *Forecast) Skip(check, why string) {
	f.Findings = append(f.Findings, Finding{check, NotChecked, why})
}

// Refused returns a moments.ErrRefused that names the failed checks, nil if there is none.
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
	return fmt.Errorf("%w: %s would not be installed: %s", moments.ErrRefused, f.ArtifactName, strings.Join(failed, ", "))
}

// LackingError: the sub-module lacks a feature that a check needs.
type LackingError struct{ Submodule, Feature string }

func (e *LackingError) Error() string {
	return fmt.Sprintf("the sub-module %s does not have the feature %s", e.Submodule, e.Feature)
}

// maxBasis is how many installations a forecast of the time looks at.
const maxBasis = 5

// PastSeconds is the median time that the newest installations took until the new
// release was healthy, and how many there were. Records of a clock that was set back
// do not count.
func PastSeconds(records []store.Record) (seconds float64, n int) {
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
