package submodules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mender-app/mender-app/artifact/quickjson"
)

// status prints how the application is as one JSON object.
func status(ctx context.Context, c *call) error {
	s, err := statusOf(ctx, c.session)
	if err != nil {
		return err
	}
	return json.NewEncoder(c.out).Encode(s)
}

// statusOf asks a session how its application is.
func statusOf(ctx context.Context, session Session) (Status, error) {
	r, ok := session.(Reporter)
	if !ok {
		return Status{}, Mark(errors.New("this sub-module cannot tell"), ErrUsage)
	}
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
		s, err := statusOf(ctx, session)
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

// Statuses calls each for applications, as soon as the sub-module has told how one is
// (feature statuses/1). r is for all of them; its App and Components are not used. One
// that the sub-module cannot tell of is left out: asked alone, it has its error.
func (m *Module) Statuses(ctx context.Context, r Request, apps []string, each func(app string, s Status)) error {
	if len(apps) > MaxApps {
		return fmt.Errorf("%s: %d applications in one call, the most is %d", VerbStatus, len(apps), MaxApps)
	}
	wanted := map[string]bool{}
	for _, app := range apps {
		wanted[app] = true
	}
	r.Components = nil
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := &replyLines{verb: VerbStatus, most: maxStatusLine, fail: cancel, each: func(text []byte) error {
		var s appStatus
		if !s.quick(text) {
			s = appStatus{}
			if json.Unmarshal(text, &s) != nil {
				s.App = ""
			}
		}
		if !wanted[s.App] {
			return fmt.Errorf("%s: a line of the reply is not the JSON of an application's status: %.80q", VerbStatus, text)
		}
		delete(wanted, s.App)
		each(s.App, s.Status)
		return nil
	}}
	err := m.runTo(ctx, r, lines, VerbStatus, apps...)
	if lines.err != nil {
		return lines.err
	}
	return err
}
