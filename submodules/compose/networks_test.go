package compose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// networked is a project of two services, of which web is on a network n of its own, and
// beside shares web's network.
func networked(app, more, network string) map[string]string {
	return map[string]string{"docker-compose.yml": fmt.Sprintf(`services:
  web:
    image: %[1]s:1
    networks: [n]
    volumes: ["/kept"]
    stop_grace_period: 1s
%[2]s  beside:
    image: %[1]s:1
    network_mode: service:web
    stop_grace_period: 1s
  apart:
    image: %[1]s:1
    network_mode: none
    stop_grace_period: 1s
%[3]s`, app, more, network)}
}

// Each change of a network is there after ROLLOUT and, undone, after ROLLBACK: the services
// on it are made anew, and no other. CHECK says so before.
func TestNetworksChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string
		of       func(n network.Inspect) string // what changes
		want     [2]string
	}{
		"internal":      {"{n: {}}", "{n: {internal: true}}", func(n network.Inspect) string { return fmt.Sprint(n.Internal) }, [2]string{"false", "true"}},
		"subnet":        {"{n: {ipam: {config: [{subnet: 10.251.1.0/24}]}}}", "{n: {ipam: {config: [{subnet: 10.251.2.0/24}]}}}", func(n network.Inspect) string { return n.IPAM.Config[0].Subnet }, [2]string{"10.251.1.0/24", "10.251.2.0/24"}},
		"gateway":       {"{n: {ipam: {config: [{subnet: 10.251.3.0/24}]}}}", "{n: {ipam: {config: [{subnet: 10.251.3.0/24, gateway: 10.251.3.9}]}}}", func(n network.Inspect) string { return fmt.Sprint(n.IPAM.Config[0].Gateway == "10.251.3.9") }, [2]string{"false", "true"}},
		"no subnet":     {"{n: {ipam: {config: [{subnet: 10.251.4.0/24}]}}}", "{n: {}}", func(n network.Inspect) string { return fmt.Sprint(n.IPAM.Config[0].Subnet == "10.251.4.0/24") }, [2]string{"true", "false"}},
		"option":        {"{n: {driver_opts: {com.docker.network.bridge.enable_icc: \"true\"}}}", "{n: {driver_opts: {com.docker.network.bridge.enable_icc: \"false\"}}}", func(n network.Inspect) string { return n.Options["com.docker.network.bridge.enable_icc"] }, [2]string{"true", "false"}},
		"no option":     {"{n: {driver_opts: {com.docker.network.driver.mtu: \"1400\"}}}", "{n: {}}", func(n network.Inspect) string { return n.Options["com.docker.network.driver.mtu"] }, [2]string{"1400", ""}},
		"label":         {"{n: {labels: {a: b}}}", "{n: {labels: {a: c}}}", func(n network.Inspect) string { return n.Labels["a"] }, [2]string{"b", "c"}},
		"attachable":    {"{n: {}}", "{n: {attachable: true}}", func(n network.Inspect) string { return fmt.Sprint(n.Attachable) }, [2]string{"false", "true"}},
		"key of a name": {"{n: {name: APP-shared}}", "{n: {name: APP-other}, m: {name: APP-shared}}", func(n network.Inspect) string { return n.Labels[labelNetwork] }, [2]string{"n", "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v1 := b.load("1")
			ids := func() map[string]string {
				return map[string]string{"web": b.one("web").ID, "beside": b.one("beside").ID, "apart": b.one("apart").ID}
			}
			has := func(want string) {
				t.Helper()
				called := b.app + "_n"
				if strings.Contains(c.old, "APP-shared") {
					called = b.app + "-shared"
				}
				n, err := b.cli.NetworkInspect(t.Context(), called, network.InspectOptions{})
				require.NoError(t, err)
				require.Equal(t, want, c.of(n))
				full, err := b.cli.ContainerInspect(t.Context(), b.one("web").ID)
				require.NoError(t, err)
				require.Equal(t, n.ID, full.NetworkSettings.Networks[called].NetworkID, "web is on it")
			}
			request := func(id, networks, more string) submodules.Request {
				networks = strings.ReplaceAll(networks, "APP", b.app)
				if strings.Contains(networks, " m:") {
					more = "    labels: {now: on-m}\n" + more
				}
				files := networked(b.app, more, "networks: "+networks+"\n")
				if strings.Contains(networks, " m:") {
					files["docker-compose.yml"] = strings.Replace(files["docker-compose.yml"], "networks: [n]", "networks: [n, m]", 1)
				}
				return submodules.Request{App: b.app, Dir: b.release(id, files), Components: []submodules.Component{v1}}
			}
			require.NoError(t, b.mod.Rollout(t.Context(), request("1", c.old, "")))
			has(c.want[0])
			before := ids()
			kept := b.one("web").Mounts[0].Name

			one := request("1", c.old, "")
			changes, err := b.mod.Check(t.Context(), one)
			require.NoError(t, err)
			require.Equal(t, []string{"apart", "beside", "web"}, changes.Keeps, "nothing changes")
			require.NoError(t, b.mod.Rollout(t.Context(), one))
			require.Equal(t, before, ids(), "nothing has changed")

			two := request("2", c.new, "")
			changes, err = b.mod.Check(t.Context(), two)
			require.NoError(t, err)
			require.Len(t, changes.Networks, 1)
			require.Equal(t, []string{"beside", "web"}, changes.Restarts)
			require.Equal(t, []string{"apart"}, changes.Keeps)
			require.Equal(t, before, ids(), "CHECK changes nothing")
			require.NoError(t, b.mod.Rollout(t.Context(), two))
			has(c.want[1])
			after := ids()
			require.NotEqual(t, before["web"], after["web"])
			require.NotEqual(t, before["beside"], after["beside"])
			require.Equal(t, before["apart"], after["apart"], "it is not on the network")
			require.Equal(t, kept, b.one("web").Mounts[0].Name, "the volume without a name is taken over")

			require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request("1", c.old, "")}))
			has(c.want[0])
			require.Equal(t, before["apart"], b.one("apart").ID)
			ok, err := b.mod.Healthy(t.Context(), submodules.Request{App: b.app})
			require.NoError(t, err)
			require.True(t, ok)
		})
	}
}

// A network that cannot be made: ROLLBACK makes that of before again.
func TestNetworkCannotBeMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	request := func(id, network string) submodules.Request {
		return submodules.Request{App: b.app, Dir: b.release(id, networked(b.app, "", "networks: "+network+"\n")), Components: []submodules.Component{v1}}
	}
	require.NoError(t, b.mod.Rollout(t.Context(), request("1", "{n: {internal: true}}")))
	require.ErrorContains(t, b.mod.Rollout(t.Context(), request("2", "{n: {driver: no-such-driver}}")), "docker compose up failed half-way")
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request("1", "{n: {internal: true}}")}))
	n, err := b.cli.NetworkInspect(t.Context(), b.app+"_n", network.InspectOptions{})
	require.NoError(t, err)
	require.True(t, n.Internal)
	require.Equal(t, "running", string(b.one("web").State))
}

// Who else uses a network is not cut off by an update; a rollback goes on.
func TestNetworkOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	request := func(id, network string) submodules.Request {
		return submodules.Request{App: b.app, Dir: b.release(id, networked(b.app, "", "networks: "+network+"\n")), Components: []submodules.Component{v1}}
	}
	require.NoError(t, b.mod.Rollout(t.Context(), request("1", "{n: {}}")))
	web := b.one("web").ID
	made, err := b.cli.ContainerCreate(t.Context(), &container.Config{Image: b.app + ":1"}, &container.HostConfig{NetworkMode: container.NetworkMode(b.app + "_n")}, nil, nil, b.app+"-visitor")
	require.NoError(t, err)
	require.NoError(t, b.cli.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
	for _, call := range []func(submodules.Request) error{
		func(r submodules.Request) error { return b.mod.Rollout(t.Context(), r) },
		func(r submodules.Request) error { _, err := b.mod.Check(t.Context(), r); return err },
	} {
		err = call(request("2", "{n: {internal: true}}"))
		require.ErrorIs(t, err, submodules.ErrRequirement)
		require.ErrorContains(t, err, "the network "+b.app+"_n is to be made anew (internal becomes true, from false), and the container "+b.app+"-visitor uses it")
		require.Equal(t, web, b.one("web").ID, "nothing has changed")
	}
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request("2", "{n: {internal: true}}")}))
	require.Contains(t, b.log.String(), "warning: "+b.app+"-visitor loses the network "+b.app+"_n")
}

// What is external is only looked for.
func TestExternal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	files := networked(b.app, "", "networks: {n: {external: true, name: "+b.app+"-ext}}\nvolumes: {data: {external: true, name: "+b.app+"-vol}}\n")
	files["docker-compose.yml"] = strings.Replace(files["docker-compose.yml"], `["/kept"]`, `["data:/kept"]`, 1)
	req := submodules.Request{App: b.app, Dir: b.release("1", files), Components: []submodules.Component{v1}}
	err := b.mod.Rollout(t.Context(), req)
	require.ErrorIs(t, err, submodules.ErrRequirement)
	require.ErrorContains(t, err, "the volume "+b.app+"-vol is external, and is not there: make it first (docker volume create "+b.app+"-vol)")
	_, err = b.cli.VolumeCreate(t.Context(), volume.CreateOptions{Name: b.app + "-vol"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.cli.VolumeRemove(t.Context(), b.app+"-vol", true) })
	require.ErrorContains(t, b.mod.Rollout(t.Context(), req), "the network "+b.app+"-ext is external, and is not there: make it first (docker network create "+b.app+"-ext)")
	require.Empty(t, b.service("web"))
	_, err = b.cli.NetworkCreate(t.Context(), b.app+"-ext", network.CreateOptions{Internal: true})
	require.NoError(t, err)
	require.NoError(t, b.mod.Rollout(t.Context(), req))
}

// A volume that a release changes stays: its data would be lost. CHECK and ROLLOUT say so.
func TestVolumeChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	request := func(id, size string) submodules.Request {
		files := networked(b.app, "", "networks: {n: {}}\nvolumes: {data: {driver_opts: {type: tmpfs, device: tmpfs, o: \"size="+size+"\"}}}\n")
		files["docker-compose.yml"] = strings.Replace(files["docker-compose.yml"], `["/kept"]`, `["data:/data"]`, 1)
		return submodules.Request{App: b.app, Dir: b.release(id, files), Components: []submodules.Component{v1}}
	}
	t.Cleanup(func() {
		_ = b.mod.Purge(t.Context(), submodules.PurgeRequest{Request: submodules.Request{App: b.app}, Data: true})
	})
	require.NoError(t, b.mod.Rollout(t.Context(), request("1", "1m")))
	require.NotContains(t, b.log.String(), "warning: the volume")
	changes, err := b.mod.Check(t.Context(), request("2", "9m"))
	require.NoError(t, err)
	require.Equal(t, []string{"data"}, changes.Volumes)
	b.log.Reset()
	require.NoError(t, b.mod.Rollout(t.Context(), request("2", "9m")))
	require.Contains(t, b.log.String(), "warning: the volume "+b.app+"_data stays as it is, because to make it anew would lose its data: its option o is \"size=1m\", and the release says \"size=9m\"")
	on, err := b.cli.VolumeInspect(t.Context(), b.app+"_data")
	require.NoError(t, err)
	require.Equal(t, "size=1m", on.Options["o"])
}
