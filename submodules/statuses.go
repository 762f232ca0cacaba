package submodules

import (
	"context"
	"encoding/json"
	"errors"
)

// statusOf asks a session how its application is.
func statusOf(r Reporter, ctx context.Context) (Status, error) {
	s, err := r.Status(ctx)
	if s.Services == nil {
		s.Services = []Service{}
	}
	return s, err
}

// MaxApps is how many applications one call of STATUS may ask for.
const MaxApps = 64

// appStatus is a line of the answer to STATUS with several applications.
type appStatus struct {
	App string `json:"application"`
	Status
}

// maxStatusLine bounds a line of the answer to STATUS, in bytes.
const maxStatusLine = 1 << 20

// statuses answers STATUS with several applications: a line for each. One that cannot be
// told of has none; asked alone, it has its error.
func (f frame) statuses(ctx context.Context, r Request) error {
	out := json.NewEncoder(f.out)
	for _, app := range append([]string{r.App}, r.More...) {
		one := r
		one.App, one.More = app, nil
		session, err := f.o.Open(ctx, VerbStatus, one)
		if err != nil {
			return err // it would be the same for the others
		}
		reporter, ok := session.(Reporter)
		if !ok {
			_ = session.Close()
			return Mark(errors.New("this sub-module cannot tell"), ErrUsage)
		}
		s, err := statusOf(reporter, ctx)
		_ = session.Close()
		switch {
		case ctx.Err() != nil:
			return &marked{err: errors.Join(ctx.Err(), err), mark: ErrDeadline}
		case err != nil:
			r.Logf("warning: %s: %v", app, err)
			continue
		}
		if err := out.Encode(appStatus{app, s}); err != nil {
			return err
		}
	}
	return nil
}
