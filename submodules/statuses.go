package submodules

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mender-app/mender-app/artifact/quickjson"
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

// quick reads a line in its usual form, as there is one for each application, and reports
// whether it could.
func (s *appStatus) quick(text []byte) bool {
	in := quickjson.Of(text)
	in.Object(func(name []byte) {
		switch string(name) {
		case "application":
			s.App = in.String()
		case "alive":
			s.Alive = in.Bool()
		case "healthy":
			s.Healthy = in.Bool()
		case "services":
			if s.Services != nil { // twice: encoding/json would join them
				in.Fail()
				return
			}
			s.Services = []Service{}
			in.Array(func() { s.Services = append(s.Services, service(in)) })
		default:
			in.Fail()
		}
	})
	return in.Whole()
}

func service(in *quickjson.Reader) (v Service) {
	in.Object(func(name []byte) {
		switch string(name) {
		case "service":
			v.Name = in.String()
		case "instance":
			v.Instance = in.String()
		case "health":
			v.Health = in.String()
		case "since":
			v.Since = in.Time()
		case "restarts":
			v.Restarts = int(in.Int(32))
		case "failure":
			v.Failure = in.String()
		case "failed":
			v.Failed = in.Time()
		case "said":
			v.Said = in.String()
		default:
			in.Fail()
		}
	})
	return v
}

// quick reads the answer to PROTOCOL in its usual form, and reports whether it could.
func (i *Info) quick(text []byte) bool {
	in := quickjson.Of(text)
	in.Object(func(name []byte) {
		switch string(name) {
		case "protocol":
			i.Protocol = in.String()
		case "name":
			i.Name = in.String()
		case "version":
			i.Version = in.String()
		case "features":
			i.Features = in.Strings()
		case "env":
			i.Env = in.Strings()
		default:
			in.Fail()
		}
	})
	return in.Whole()
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
