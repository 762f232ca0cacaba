package submodules

import (
	"context"
)

// Changes is the answer to CHECK: the effect of ROLLOUT on each service. Each list is
// sorted.
type Changes struct {
	Starts   []string `json:"starts"`   // new ones, and those that should run and do not
	Restarts []string `json:"restarts"` // those that run, and would be replaced
	Keeps    []string `json:"keeps"`    // those that would go on undisturbed
	Removes  []string `json:"removes"`  // those that the release no longer has
	// Networks would be made anew; their services are among Starts and Restarts. Volumes
	// stay as they are although the release changes them, because their data would be
	// lost. Both lists have the names in the manifests.
	Networks []string `json:"networks,omitempty"`
	Volumes  []string `json:"volumes,omitempty"`
	// HealthyWithin is how long the release would have to become healthy, in seconds; 0 if
	// that is not known.
	HealthyWithin int `json:"healthy_within,omitempty"`
}

// Checker is a Session with the feature check/1.
type Checker interface {
	// Check makes the checks that Rollout makes before it changes anything, on a
	// release whose components need not be loaded. It changes nothing.
	Check(ctx context.Context, r Request) (Changes, error)
}

// check returns what would change, with lists that are never nil.
func check(ctx context.Context, k Checker, r Request) (Changes, error) {
	changes, err := k.Check(ctx, r)
	for _, list := range []*[]string{&changes.Starts, &changes.Restarts, &changes.Keeps, &changes.Removes} {
		if *list == nil {
			*list = []string{}
		}
	}
	return changes, err
}
