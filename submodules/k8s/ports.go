package k8s

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/level"
)

// A port of the node that a pod or a load balancer asks for is a rule of the node's firewall:
// nothing listens on it, so nothing notices that a program of the node, such as sshd, gets no
// connections any more.

// nodePort is a port of the node.
type nodePort struct {
	protocol string // tcp, udp
	number   uint16
}

// checkPorts refuses, below the level host-network, a release that asks for a port of the
// node on which a program of the node listens.
func (s *session) checkPorts(r *release) error {
	if s.set.Levels.Of(r.app) >= level.HostNetwork {
		return nil
	}
	listening, err := listeners()
	if err != nil {
		return err
	}
	for _, p := range r.objects {
		wants, err := nodePorts(p.Object)
		if err != nil {
			return submodules.Mark(p.Errorf("%w", err), submodules.ErrContent)
		}
		for _, port := range wants {
			if listening[port] {
				return submodules.Mark(p.Errorf("it asks for the port %d/%s of the node, on which a program of the node listens, and needs the level %s, and LEVEL in %s gives this application %s: give it another port",
					port.number, port.protocol, level.HostNetwork, ConfigName, s.set.Levels.Of(r.app)), submodules.ErrContent)
			}
		}
	}
	return nil
}

// nodePorts are the ports of the node that an object asks for: those of its pods, and those
// of a Service with a load balancer, which on small clusters is the node. A nodePort is not
// among them: it is in a range that the cluster keeps for them.
func nodePorts(o *manifest.Object) (list []nodePort, err error) {
	var object map[string]any
	if err := json.Unmarshal(o.JSON, &object); err != nil {
		return nil, err
	}
	add := func(ports []any, field string) {
		for _, p := range ports {
			m, _ := p.(map[string]any)
			n, _ := m[field].(float64)
			protocol, _ := m["protocol"].(string)
			if protocol == "" {
				protocol = "tcp"
			}
			if n > 0 && n < 1<<16 {
				list = append(list, nodePort{strings.ToLower(protocol), uint16(n)})
			}
		}
	}
	if kind, _, _ := unstructured.NestedString(object, "spec", "type"); o.Group() == "" && o.Kind == "Service" && kind == "LoadBalancer" {
		ports, _, _ := unstructured.NestedSlice(object, "spec", "ports")
		add(ports, "port")
	}
	at := manifest.PodPath(o.Group(), o.Kind)
	if at == "" {
		return list, nil
	}
	for _, field := range []string{"containers", "initContainers"} {
		containers, _, _ := unstructured.NestedSlice(object, append(strings.Split(at, "."), field)...)
		for _, c := range containers {
			m, _ := c.(map[string]any)
			ports, _ := m["ports"].([]any)
			add(ports, "hostPort")
		}
	}
	return list, nil
}

// listeners are the ports of the node on which programs listen, at any address.
func listeners() (map[nodePort]bool, error) {
	list := map[nodePort]bool{}
	for _, table := range []struct{ file, protocol, state string }{
		{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, {"udp", "udp", "07"}, {"udp6", "udp", "07"}, // TCP_LISTEN; a socket of UDP that is not connected
	} {
		text, err := os.ReadFile("/proc/thread-self/net/" + table.file)
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ports of the node: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			// sl, ADDRESS:PORT, ADDRESS:PORT of the other side, state
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != table.state {
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(port, 16, 16); err == nil {
				list[nodePort{table.protocol, uint16(n)}] = true
			}
		}
	}
	return list, nil
}
