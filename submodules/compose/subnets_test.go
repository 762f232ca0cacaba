package compose

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// The kernel's tables say what the device reaches over its interfaces. A subnet of a release
// takes none of it.
func TestSubnetsOfDevice(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its network
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			out, err := exec.Command("sh", "-ec", `ip link set lo up
ip link add lan type veth peer name far
ip link set far up
ip link set lan up
ip address add 192.168.7.20/24 dev lan
ip address add fd00:7::20/64 dev lan nodad
ip route add 10.8.0.0/16 via 192.168.7.1
ip route add default via 192.168.7.1
ip route add 128.0.0.0/1 via 192.168.7.1
`).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			routes, err := deviceRoutes()
			if err != nil {
				return err
			}
			for _, r := range routes {
				t.Log(r.Prefix, r.device)
			}
			for chosen, takes := range map[string]string{
				"192.168.7.0/24": "192.168.7.0/24", "192.168.7.128/25": "192.168.7.0/24", "192.168.0.0/16": "192.168.7.0/24", "10.8.3.0/24": "10.8.0.0/16",
				"fd00:7::/112": "fd00:7::/64", "192.168.8.0/24": "", "10.9.0.0/16": "", "172.28.0.0/16": "", "fd00:8::/64": "",
			} {
				err := notOfDevice([]subnet{{"n", netip.MustParsePrefix(chosen)}}, nil, rules.Confined)
				if takes == "" && err != nil || takes != "" && (err == nil || !strings.Contains(err.Error(), "the network n has the subnet "+chosen+", which takes the device's traffic to "+takes+" (lan) and needs the level host-network")) {
					return fmt.Errorf("%s: %w", chosen, err)
				}
			}
			own := netip.MustParsePrefix("192.168.7.0/24")
			return notOfDevice([]subnet{{"n", own}}, []netip.Prefix{own}, rules.Confined)
		}()
	}()
	if err := <-done; err != nil {
		if err == unix.EPERM {
			missing(t, "this test needs root, to make a network: %v", err)
		}
		require.NoError(t, err)
	}
}

// A release does not get the subnet of another application's network, and CHECK says so
// before anything is loaded. Its own network stays.
func TestSubnetsOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	request := func(subnet string) submodules.Request {
		return submodules.Request{App: b.app, Components: []submodules.Component{v1},
			Dir: b.release("1", networked(b.app, "", "networks: {n: {ipam: {config: [{subnet: "+subnet+"}]}}}\n"))}
	}
	other := b.app + "-other"
	_, err := b.cli.NetworkCreate(t.Context(), other, network.CreateOptions{IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.251.64.0/20"}}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.cli.NetworkRemove(context.Background(), other)) })
	for _, subnet := range []string{"10.251.64.0/20", "10.251.66.0/24", "10.251.0.0/17"} {
		_, err = b.mod.Check(t.Context(), request(subnet))
		require.ErrorIs(t, err, submodules.ErrRequirement)
		require.ErrorContains(t, err, "which overlaps with 10.251.64.0/20 of the network "+other+": give it another one")
	}
	require.NoError(t, b.mod.Rollout(t.Context(), request("10.251.80.0/24")))
	_, err = b.mod.Check(t.Context(), request("10.251.80.0/24"))
	require.NoError(t, err)
	_, err = b.mod.Check(t.Context(), request("10.251.80.0/25"))
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(filepath.Join(b.mod.Config.ConfigDir, confName), []byte("LEVEL=confined\n"), 0o600))
	_, err = b.mod.Check(t.Context(), request("10.251.80.0/25"))
	require.NoError(t, err)
	routes, err := deviceRoutes()
	require.NoError(t, err)
	for _, r := range routes {
		_, err = b.mod.Check(t.Context(), request(r.Prefix.String()))
		require.ErrorContains(t, err, r.Prefix.String())
	}
}
