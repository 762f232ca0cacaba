package compose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
)

// hostPort is a port of the device.
type hostPort struct {
	address, protocol string
	number            uint16
}

func newHostPort(address, protocol string, number uint16) hostPort {
	if address == "::" { // the engine takes both for every address
		address = ""
	}
	return hostPort{cmp.Or(address, "0.0.0.0"), cmp.Or(protocol, "tcp"), number}
}

func (p hostPort) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// hostPorts are the ports of the device that a service needs. Of a range the engine takes a
// free one.
func (s service) hostPorts() (ports []hostPort) {
	for _, text := range s.Ports {
		var p struct {
			Published any    `json:"published"` // a text, or a number in older versions of Compose
			Protocol  string `json:"protocol"`
			HostIP    string `json:"host_ip"`
		}
		if json.Unmarshal(text, &p) != nil || p.Published == nil {
			continue
		}
		if n, err := strconv.ParseUint(fmt.Sprint(p.Published), 10, 16); err == nil && n > 0 {
			ports = append(ports, newHostPort(p.HostIP, p.Protocol, uint16(n)))
		}
	}
	return ports
}

// checkPorts refuses a release that needs a port which a container has that is no
// application's: it could not start, and after it neither could a release that is stopped now.
func (s *session) checkPorts(pl *plan) error {
	taken := map[hostPort]container.Summary{}
	ours := s.mine(pl, pl.everything)
	for _, c := range pl.everything {
		if _, owned := s.owner(c); owned || ours[c.ID] || c.Labels[labelProject] == pl.name {
			continue
		}
		for _, p := range c.Ports {
			if p.PublicPort != 0 {
				taken[newHostPort(p.IP, p.Type, p.PublicPort)] = c
			}
		}
	}
	for _, service := range pl.model.names() {
		svc := pl.model.Services[service]
		if svc.containers() == 0 {
			continue
		}
		for _, p := range svc.hostPorts() {
			if by, ok := taken[p]; ok {
				called := name(by)
				return submodules.Mark(fmt.Errorf("service %s needs the port %v, which the container %s has, and that belongs to no application: stop it (docker stop %s), or give the service another port", service, p, called, called), submodules.ErrRequirement)
			}
		}
	}
	return nil
}
