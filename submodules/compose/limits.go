package compose

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
)

// number is a number that Compose prints as a number or as a text.
type number float64

// UnmarshalJSON implements json.Unmarshaler. What is no number is 0.
func (n *number) UnmarshalJSON(text []byte) error {
	f, _ := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = number(f)
	return nil
}

// limits are what a service may use of the machine; 0 is no limit.
type limits struct {
	Memory      number `json:"mem_limit"`
	Reservation number `json:"mem_reservation"`
	CPUs        number `json:"cpus"`
	CPUShares   number `json:"cpu_shares"`
	CPUPeriod   number `json:"cpu_period"`
	CPUQuota    number `json:"cpu_quota"`
	Pids        number `json:"pids_limit"`
}

// effective are the service's limits, with those of deploy.resources before its own keys,
// as in Compose.
func (s service) effective() limits {
	l := s.limits
	if s.Deploy == nil {
		return l
	}
	type amounts struct {
		CPUs   number `json:"cpus"`
		Memory number `json:"memory"`
		Pids   number `json:"pids"`
	}
	var deploy struct {
		Limits       amounts `json:"limits"`
		Reservations amounts `json:"reservations"`
	}
	if json.Unmarshal(s.Deploy.Resources, &deploy) != nil {
		return l
	}
	l.CPUs, l.Memory, l.Pids = cmp.Or(deploy.Limits.CPUs, l.CPUs), cmp.Or(deploy.Limits.Memory, l.Memory), cmp.Or(deploy.Limits.Pids, l.Pids)
	l.Reservation = cmp.Or(deploy.Reservations.Memory, l.Reservation)
	return l
}

// update returns the limits to give back to a container that somebody changed (docker
// update), by name, and the update that does so. No update takes a limit away from a
// container: with anew it has to be made again. Swap and the default number of processes
// are the engine's matter.
func (s service) update(has container.Resources) (u container.UpdateConfig, changed []string, anew bool) {
	l := s.effective()
	for _, one := range []struct {
		name      string
		want, has int64
		about     int64 // what makes no difference
		to        *int64
	}{
		{"mem_limit", int64(l.Memory), has.Memory, 0, &u.Memory},
		{"mem_reservation", int64(l.Reservation), has.MemoryReservation, 0, &u.MemoryReservation},
		{"cpus", int64(float64(l.CPUs) * 1e9), has.NanoCPUs, 1e6, &u.NanoCPUs},
		{"cpu_shares", int64(l.CPUShares), has.CPUShares, 0, &u.CPUShares},
		{"cpu_period", int64(l.CPUPeriod), has.CPUPeriod, 0, &u.CPUPeriod},
		{"cpu_quota", int64(l.CPUQuota), has.CPUQuota, 0, &u.CPUQuota},
	} {
		if d := one.want - one.has; max(d, -d) < one.about || d == 0 {
			continue
		}
		changed, anew = append(changed, one.name), anew || one.want == 0
		*one.to = one.want
	}
	if u.Memory > 0 && has.MemorySwap > 0 && has.Memory > 0 {
		u.MemorySwap = max(has.MemorySwap-has.Memory+u.Memory, u.Memory) // the engine refuses less than the memory
	}
	if pids := int64(l.Pids); pids > 0 && has.PidsLimit != nil && *has.PidsLimit != pids {
		u.PidsLimit, changed = &pids, append(changed, "pids_limit")
	}
	if has.CpusetCpus != s.CPUSet {
		u.CpusetCpus, changed, anew = s.CPUSet, append(changed, "cpuset"), anew || s.CPUSet == ""
	}
	return u, changed, anew
}

// unlimited says which limits that somebody gave a container have to go, so that it has to be
// made again; "" for none. Each service is said once in a call.
func (pl *plan) unlimited(service string, c container.InspectResponse) string {
	if c.HostConfig == nil || pl.relimited[service] {
		return ""
	}
	_, changed, anew := pl.model.Services[service].update(c.HostConfig.Resources)
	if !anew {
		return ""
	}
	pl.relimited[service] = true
	return "somebody changed its " + strings.Join(changed, ", ")
}

// resetLimits gives containers the limits of the release again where somebody has changed
// them: Compose does not notice. No container is restarted, and an engine that cannot limit
// something keeps none from starting.
func (s *session) resetLimits(ctx context.Context, p *project, list []container.InspectResponse) {
	for _, c := range list {
		svc, ok := p.model.Services[serviceOf(c)]
		if !ok || c.HostConfig == nil {
			continue
		}
		u, changed, anew := svc.update(c.HostConfig.Resources)
		if len(changed) == 0 || anew {
			continue
		}
		called, what := strings.TrimPrefix(c.Name, "/"), strings.Join(changed, ", ")
		said, err := s.engine.Client().ContainerUpdate(ctx, c.ID, u)
		switch {
		case err != nil:
			s.req.Logf("warning: container %s does not have the %s of the release: %v", called, what, err)
		case len(said.Warnings) == 0:
			s.req.Logf("container %s gets its %s back", called, what)
		}
	}
}
