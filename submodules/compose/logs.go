package compose

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/servicelog"
)

// Logs implements submodules.Logger.
func (s *session) Logs(ctx context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error {
	list := func(ctx context.Context) (sources []servicelog.Source, err error) {
		all, err := s.ours(ctx)
		for _, c := range all {
			if r.Service == "" || c.Labels[labelService] == r.Service {
				sources = append(sources, servicelog.Source{
					ID: c.ID, Name: name(c), Service: c.Labels[labelService], Running: c.State == container.StateRunning,
				})
			}
		}
		return sources, err
	}
	if sources, err := list(ctx); err != nil || len(sources) == 0 {
		if err == nil {
			err = fmt.Errorf("application %s has no containers", s.req.App)
			if r.Service != "" {
				err = fmt.Errorf("application %s has no containers of a service %s", s.req.App, r.Service)
			}
		}
		return submodules.Mark(err, submodules.ErrNotFound)
	}
	reader := servicelog.Reader{Open: s.openLog, Tail: submodules.DefaultLogLines, List: list}
	if r.Lines != nil {
		reader.Tail = *r.Lines
	}
	reader.Each = func(c servicelog.Source, l servicelog.Line) error {
		line := submodules.LogLine{Service: c.Service, Instance: c.Name, At: l.At, Stream: "stdout", Text: l.Text}
		if l.Stderr {
			line.Stream = "stderr"
		}
		return each(line)
	}
	reader.Failed = func(c servicelog.Source, err error) { s.req.Logf("no log of %s: %v", c.Name, err) }
	if r.Follow {
		return reader.Follow(ctx)
	}
	return reader.Print(ctx)
}

// openLog opens the log of a container; it implements servicelog.Open.
func (s *session) openLog(ctx context.Context, id string, o servicelog.Options) (io.ReadCloser, error) {
	options := container.LogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: o.Follow}
	if !o.Follow {
		options.Tail = strconv.Itoa(o.Tail)
	}
	if !o.Since.IsZero() {
		options.Since = fmt.Sprintf("%d.%09d", o.Since.Unix(), o.Since.Nanosecond())
	}
	return s.engine.Client().ContainerLogs(ctx, id, options)
}
