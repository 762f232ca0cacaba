package submodules

import (
	"context"
	"encoding/json"
	"errors"
)

// statusOf asks a session for its application's status.
func statusOf(ctx context.Context, k Reporter, r statusRequest) (Status, error) {
	s, err := k.Status(ctx, r.Request)
	if s.Services == nil {
		s.Services = []Service{}
	}
	return s, err
}

// MaxApps is the maximum number of applications in one call of STATUS.
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
func (f frame) statuses(ctx context.Context, r statusRequest) error {
	out := json.NewEncoder(f.out)
	components := map[string][]Component{}
	for _, c := range r.Components {
		app := c.App
		c.App = ""
		components[app] = append(components[app], c)
	}
	for _, app := range append([]string{r.App}, r.more...) {
		one := statusRequest{Request: r.Request}
		one.App, one.Components = app, components[app]
		session, err := f.o.Open(ctx, VerbStatus, one.Request)
		if err != nil {
			return err // the others would get the same error
		}
		reporter, ok := session.(Reporter)
		if !ok {
			_ = session.Close()
			return Mark(errors.New("this sub-module cannot tell"), ErrUsage)
		}
		s, err := statusOf(ctx, reporter, one)
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
