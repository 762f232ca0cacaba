package submodules

import (
	"context"
	"encoding/json"
	"errors"
)

// statusOf asks a session for its application's status.
func statusOf(r Reporter, ctx context.Context) (Status, error) {
	s, err := r.Status(ctx)
	if s.Services == nil {
		s.Services = []Service{}
	}
	return s, err
}

// MaxApps is how many applications one call of STATUS may ask about.
const MaxApps = 64

// appStatus is a line of the answer to STATUS with several applications.
type appStatus struct {
	App string `json:"application"`
	Status
}

// maxStatusLine bounds a line of the answer to STATUS, in bytes.
const maxStatusLine = 1 << 20

// statuses answers STATUS with several applications: a line for each. An application
// without a status gets no line; asking about it alone returns its error.
func (f frame) statuses(ctx context.Context, r Request) error {
	out := json.NewEncoder(f.out)
	for _, app := range append([]string{r.App}, r.More...) {
		one := r
		one.App, one.More = app, nil
		session, err := f.o.Open(ctx, VerbStatus, one)
		if err != nil {
			return err // the others would get the same error
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
