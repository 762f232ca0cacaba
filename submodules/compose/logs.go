package compose

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/enginelog"
)

// Logs implements submodules.Logger.
func (s *session) Logs(ctx context.Context, each func(submodules.LogLine) error) error {
	list := func(ctx context.Context) (sources []enginelog.Source, err error) {
		all, err := s.ours(ctx)
		for _, c := range all {
			if s.req.Service == "" || c.Labels[labelService] == s.req.Service {
				sources = append(sources, enginelog.Source{
					ID: c.ID, Name: name(c), Service: c.Labels[labelService], Running: c.State == container.StateRunning,
				})
			}
		}
		return sources, err
	}
	if sources, err := list(ctx); err != nil || len(sources) == 0 {
		if err == nil {
			err = fmt.Errorf("application %s has no containers", s.req.App)
			if s.req.Service != "" {
				err = fmt.Errorf("application %s has no containers of a service %s", s.req.App, s.req.Service)
			}
		}
		return submodules.Mark(err, submodules.ErrNotFound)
	}
	reader := enginelog.Reader{Client: s.engine.Client(), Tail: submodules.DefaultLogLines, List: list}
	if s.req.LogLines != nil {
		reader.Tail = *s.req.LogLines
	}
	reader.Each = func(c enginelog.Source, l enginelog.Line) error {
		line := submodules.LogLine{Service: c.Service, Instance: c.Name, At: l.At, Stream: "stdout", Text: l.Text}
		if l.Stderr {
			line.Stream = "stderr"
		}
		return each(line)
	}
	reader.Failed = func(c enginelog.Source, err error) { s.req.Logf("no log of %s: %v", c.Name, err) }
	if s.req.HasOption(submodules.OptionFollow) {
		return reader.Follow(ctx)
	}
	return reader.Print(ctx)
}
