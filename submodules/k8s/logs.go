package k8s

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/servicelog"
)

// Logs implements submodules.Logger. An instance is a pod, or a container of a pod that
// has several. Kubernetes does not keep standard error apart.
func (s *session) Logs(ctx context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error {
	list := func(ctx context.Context) ([]servicelog.Source, error) { return s.logSources(ctx, r.Service) }
	sources, err := list(ctx)
	if err == nil && len(sources) == 0 {
		err = fmt.Errorf("application %s has no pods", s.req.App)
		if r.Service != "" {
			err = fmt.Errorf("application %s has no pods of a service %s (a service is a workload, such as deployment/web)", s.req.App, r.Service)
		}
		return submodules.Mark(err, submodules.ErrNotFound)
	}
	if err != nil {
		return err
	}
	reader := servicelog.Reader{Open: s.openLog, Tail: submodules.DefaultLogLines, List: list}
	if r.Lines != nil {
		reader.Tail = *r.Lines
	}
	reader.Each = func(c servicelog.Source, l servicelog.Line) error {
		return each(submodules.LogLine{Service: c.Service, Instance: c.Name, At: l.At, Stream: "stdout", Text: l.Text})
	}
	reader.Failed = func(c servicelog.Source, err error) { s.log("no log of %s: %v", c.Name, err) }
	if r.Follow {
		return reader.Follow(ctx)
	}
	return reader.Print(ctx)
}

// logSources returns the containers whose logs are requested; service "" means all.
func (s *session) logSources(ctx context.Context, service string) (all []servicelog.Source, err error) {
	st, err := s.inspect(ctx, s.req.App)
	if err != nil {
		return nil, err
	}
	for _, w := range st.workloads {
		if service != "" && service != w.service() {
			continue
		}
		for i := range w.pods {
			all = append(all, w.pods[i].logSources(w.service())...)
		}
	}
	return all, nil
}

// logSources returns the pod's containers that have been started.
func (p *pod) logSources(service string) (all []servicelog.Source) {
	for _, c := range p.containers() {
		if c.State.Waiting != nil && c.RestartCount == 0 {
			continue
		}
		source := servicelog.Source{
			ID: p.Metadata.Namespace + "/" + p.Metadata.Name + "/" + c.Name, Name: p.Metadata.Name,
			Service: service, Running: c.State.Running != nil,
		}
		if len(p.Status.Init)+len(p.Status.Containers) > 1 {
			source.Name += "/" + c.Name
		}
		all = append(all, source)
	}
	return all
}

// openLog opens the log of a container; it implements servicelog.Open. The ID comes
// from logSources.
func (s *session) openLog(ctx context.Context, id string, o servicelog.Options) (io.ReadCloser, error) {
	namespace, rest, _ := strings.Cut(id, "/")
	name, container, _ := strings.Cut(rest, "/")
	lines := o.Tail
	if o.Follow {
		lines = -1
	}
	return s.c.OpenLog(ctx, namespace, name, container, lines, o.Since, o.Follow)
}
