package compose

import (
	"context"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
)

// restartPolicy is what the service's files say of when the engine restarts it. It is not
// known where deploy: says it, or nobody does.
func (s service) restartPolicy() (p container.RestartPolicy, known bool) {
	if s.Restart == "" || s.Deploy != nil && len(s.Deploy.RestartPolicy) > 0 {
		return p, false
	}
	mode, most, counted := strings.Cut(s.Restart, ":")
	p.Name = container.RestartPolicyMode(mode)
	if counted {
		n, err := strconv.Atoi(most)
		if err != nil {
			return p, false
		}
		p.MaximumRetryCount = n
	}
	return p, true
}

// resetPolicies gives containers the restart policy of the release again where somebody has
// changed it (docker update): Compose does not notice, and the container would not start with
// the engine, or would start against the release's will. No container is restarted.
func (s *session) resetPolicies(ctx context.Context, p *project, list []container.InspectResponse) {
	for _, c := range list {
		want, known := p.model.Services[serviceOf(c)].restartPolicy()
		if !known || c.HostConfig == nil || c.HostConfig.RestartPolicy == want || want.IsNone() && c.HostConfig.RestartPolicy.IsNone() {
			continue
		}
		called := strings.TrimPrefix(c.Name, "/")
		s.req.Logf("container %s gets its restart policy %s back", called, want.Name)
		if _, err := s.engine.Client().ContainerUpdate(ctx, c.ID, container.UpdateConfig{RestartPolicy: want}); err != nil {
			s.req.Logf("warning: container %s does not have the restart policy of the release: %v", called, err)
		}
	}
}
