package compose

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/level"
)

// This file is about the subnets that a release chooses for its networks: the device sends to
// a network's containers what anybody on it sends to the subnet.

// subnet is a range of addresses that a network of the release has.
type subnet struct {
	network string
	netip.Prefix
}

// subnets are those that the release chooses itself, as far as they are any.
func (m model) subnets() (list []subnet) {
	for _, key := range m.usedNetworks() {
		n := m.Networks[key]
		for _, c := range n.IPAM.Config {
			if p, err := netip.ParsePrefix(c.Subnet); err == nil && !n.External {
				list = append(list, subnet{n.Name, p.Masked()})
			}
		}
	}
	return list
}

// checkSubnets refuses a release with a subnet that another network of the engine has, which
// the engine would refuse when services are stopped already. Below the level host-network it
// also refuses one that takes the addresses of a network of the device.
func (s *session) checkSubnets(ctx context.Context, pl *plan) error {
	chosen := pl.model.subnets()
	if len(chosen) == 0 {
		return nil
	}
	nets, err := s.networks(ctx)
	if err != nil {
		return err
	}
	refuse := func(err error) error {
		if s.mustStart && err != nil { // no other release could run instead
			s.req.Logf("warning: %v", err)
			return nil
		}
		return err
	}
	var engines []netip.Prefix
	for _, n := range nets {
		for _, c := range n.IPAM.Config {
			p, err := netip.ParsePrefix(c.Subnet)
			if err != nil {
				continue
			}
			engines = append(engines, p.Masked())
			if i := slices.IndexFunc(chosen, func(c subnet) bool { return c.Overlaps(p) }); i >= 0 && !pl.ours(n) && n.Scope != swarmScope {
				return refuse(submodules.Mark(fmt.Errorf("the network %s has the subnet %s, which overlaps with %s of the network %s: give it another one",
					chosen[i].network, chosen[i].Prefix, p, n.Name), submodules.ErrRequirement))
			}
		}
	}
	if given := s.set.levels.Of(s.req.App); given < rules.HostNetwork {
		return refuse(notOfDevice(chosen, engines, given))
	}
	return nil
}

// swarmScope is that of networks with addresses of their own, which may overlap.
const swarmScope = "swarm"

// ours reports whether a network is the project's, or will be removed with a project of the
// application that runs.
func (pl *plan) ours(n network.Summary) bool {
	project := n.Labels[labelProject]
	if project == "" {
		return false
	}
	return project == pl.name || slices.ContainsFunc(pl.existing, func(c container.Summary) bool { return c.Labels[labelProject] == project })
}

// notOfDevice refuses subnets that overlap with a network of the device that is not the
// engine's.
func notOfDevice(chosen []subnet, engines []netip.Prefix, given level.Level) error {
	routes, err := deviceRoutes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if slices.Contains(engines, r.Prefix) {
			continue
		}
		if i := slices.IndexFunc(chosen, func(c subnet) bool { return c.Overlaps(r.Prefix) }); i >= 0 {
			return invalid("the network %s has the subnet %s, which takes the device's traffic to %s (%s) and needs the level %s, and LEVEL in %s gives this application %s: give it another subnet, or none",
				chosen[i].network, chosen[i].Prefix, r.Prefix, r.device, rules.HostNetwork, confName, given)
		}
	}
	return nil
}

// route is a range of addresses that the device reaches over one of its interfaces.
type route struct {
	netip.Prefix
	device string
}

// shortest is the length of the shortest prefix of a route that is no default one. A VPN may
// have two halves, 0.0.0.0/1 and 128.0.0.0/1, in place of one.
const shortest = 8

// deviceRoutes are the routes of the device, but for default ones and those to itself and to
// its links.
func deviceRoutes() ([]route, error) {
	four, err := readRoutes("/proc/thread-self/net/route", routeOf)
	if err != nil {
		return nil, err
	}
	six, err := readRoutes("/proc/thread-self/net/ipv6_route", routeOf6)
	if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		err = nil
	}
	return append(four, six...), err
}

// readRoutes reads a table of the kernel, of which parse reads a line.
func readRoutes(path string, parse func(fields []string) (route, bool)) (list []route, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		r, ok := parse(strings.Fields(line))
		if ok && r.Bits() >= shortest && !r.Addr().IsLoopback() && !r.Addr().IsLinkLocalUnicast() && !r.Addr().IsMulticast() {
			list = append(list, r)
		}
	}
	return list, nil
}

// routeOf reads a line of /proc/net/route: the interface, the destination, six more fields,
// and the mask; both are numbers in the order of bytes of the machine.
func routeOf(fields []string) (r route, ok bool) {
	if len(fields) < 8 {
		return r, false
	}
	to, err := strconv.ParseUint(fields[1], 16, 32)
	mask, merr := strconv.ParseUint(fields[7], 16, 32)
	if err != nil || merr != nil { // the heading
		return r, false
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(to))
	return route{netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount32(uint32(mask))), fields[0]}, true
}

// routeOf6 reads a line of /proc/net/ipv6_route: the destination, the length of its prefix,
// seven more fields, and the interface.
func routeOf6(fields []string) (r route, ok bool) {
	if len(fields) < 10 || fields[9] == "lo" {
		return r, false
	}
	to, err := hex.DecodeString(fields[0])
	length, lerr := strconv.ParseUint(fields[1], 16, 8)
	if err != nil || lerr != nil || len(to) != 16 {
		return r, false
	}
	return route{netip.PrefixFrom(netip.AddrFrom16([16]byte(to)), int(length)), fields[9]}, true
}
