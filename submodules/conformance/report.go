package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Result is the result of a check.
type Result string

// The results.
const (
	Pass       Result = "pass"
	Fail       Result = "fail"
	NotClaimed Result = "not claimed" // the protocol asks it of others only: of 1.1, or of those with a feature
	Skipped    Result = "skipped"     // it could not be checked; the reason says why
)

// Finding is the result of one check.
type Finding struct {
	Verb    string `json:"verb"`
	Check   string `json:"check"`
	Section string `json:"section"` // of PROTOCOL.md, which has the rule
	Result  Result `json:"result"`
	Reason  string `json:"reason,omitempty"`
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s", f.Verb, f.Check, f.Result)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	return s + " (PROTOCOL.md, " + f.Section + ")"
}

// Report holds the findings of Check.
type Report struct {
	Path     string    `json:"path"`
	Name     string    `json:"name"`
	Protocol string    `json:"protocol"` // 1.0 or what the sub-module says
	Version  string    `json:"version,omitempty"`
	Features []string  `json:"features"`
	Findings []Finding `json:"findings"`
}

// Failed returns the findings that failed.
func (r *Report) Failed() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Result != Fail })
}

// Count returns the number of findings with this result.
func (r *Report) Count(result Result) (n int) {
	for _, f := range r.Findings {
		if f.Result == result {
			n++
		}
	}
	return n
}

// verdict is an error that gives a check a result other than failed.
type verdict struct {
	result Result
	reason string
}

func (v *verdict) Error() string { return v.reason }

func notClaimed(format string, args ...any) error {
	return &verdict{NotClaimed, fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) error {
	return &verdict{Skipped, fmt.Sprintf(format, args...)}
}

// excerpt returns the start of a sub-module's output, on one line.
func excerpt(s string) string {
	const most = 400 // bytes: a reason lies at the end of an error
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
