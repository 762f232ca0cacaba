package submodules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Changes is the answer to CHECK: what ROLLOUT would do with each service. Each list
// is sorted.
type Changes struct {
	Starts   []string `json:"starts"`   // new ones, and those that should run and do not
	Restarts []string `json:"restarts"` // those that run, and would be replaced
	Keeps    []string `json:"keeps"`    // those that would go on undisturbed
	Removes  []string `json:"removes"`  // those that the release no longer has
}

// Checker is a Session with the feature check/1.
type Checker interface {
	// Check makes the checks that Rollout makes before it changes anything, on a
	// release whose components need not be loaded. It changes nothing.
	Check(ctx context.Context) (Changes, error)
}

// check prints what would change as one JSON object.
func check(ctx context.Context, c *call) error {
	k, ok := c.session.(Checker)
	if !ok {
		return Mark(errors.New("this sub-module cannot check"), ErrUsage)
	}
	changes, err := k.Check(ctx)
	if err != nil {
		return err
	}
	for _, list := range []*[]string{&changes.Starts, &changes.Restarts, &changes.Keeps, &changes.Removes} {
		if *list == nil {
			*list = []string{}
		}
	}
	return json.NewEncoder(c.out).Encode(changes)
}

// Check makes the checks of ROLLOUT on the manifests in r.Dir (feature check/1). Any
// directory will do, and r.Components need not be loaded.
func (m *Module) Check(ctx context.Context, r Request) (Changes, error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, VerbCheck, r.App, r.Dir); err != nil {
		return Changes{}, err
	}
	var changes Changes
	if err := json.Unmarshal(out.Bytes(), &changes); err != nil {
		return Changes{}, fmt.Errorf("%s %s: reply: %w", m.Name, VerbCheck, err)
	}
	return changes, nil
}
