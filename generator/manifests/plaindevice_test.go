package manifests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a device with one engine ignores, or lacks unless somebody prepared it, is said with
// its line.
func TestPlainDevice(t *testing.T) {
	found, err := Compose(t.Context(), writeFiles(t, map[string]string{"compose.yaml": `
services:
  web:
    image: a:1
    gpus: all
    devices: ["/dev/ttyUSB0:/dev/ttyUSB0"]
    networks: [mesh, lan]
    volumes:
      - data:/data
      - {type: bind, source: /etc/ssl, target: /ssl, bind: {create_host_path: false}}
    deploy:
      endpoint_mode: vip
      update_config: {parallelism: 1}
      rollback_config: {parallelism: 1}
      placement: {constraints: ["node.role == manager"]}
      resources: {limits: {memory: 50M}}
networks:
  mesh: {driver: overlay}
  lan: {external: true, name: factory}
volumes:
  data: {external: true}
`}), ComposeOptions{})
	require.NoError(t, err)
	notes := []string{
		`compose.yaml:5: services.web.gpus needs Docker Compose 2.30.0 on the devices; --compose-version says which they have`,
		`compose.yaml:8: service "web": /etc/ssl must be on the device before`,
		`compose.yaml:5: service "web": the device needs a GPU and its runtime`,
		`compose.yaml:6: service "web": /dev/ttyUSB0 must be on the device, or the service does not start`,
		`compose.yaml:19: network "lan" must be on the device before: docker network create factory; without external, the application has its own`,
		`compose.yaml:21: volume "data" must be on the device before: docker volume create data; without external, the application has its own`,
	}
	require.Equal(t, notes, found.Notes)
	swarm := func(line, key string) string {
		return "compose.yaml:" + line + `: service "web": deploy.` + key + " is for a swarm, and a device ignores it: leave it out"
	}
	require.ElementsMatch(t, []string{swarm("15", "placement"), swarm("13", "update_config"), swarm("14", "rollback_config"), swarm("12", "endpoint_mode"),
		`compose.yaml:18: network "mesh": the driver overlay needs a swarm, which a device has not: leave driver out`}, found.Warnings)
}

// What a device refuses because it may be another application's is said with its line.
func TestOthersThings(t *testing.T) {
	found, err := Compose(t.Context(), writeFiles(t, map[string]string{"compose.yaml": `
services:
  web:
    image: a:1
    network_mode: container:kiosk-web-1
    pid: container:kiosk-web-1
    volumes_from: ["container:kiosk-web-1:ro"]
    external_links: ["kiosk-web-1:db"]
    volumes:
      - /data/mender-app/kiosk/data:/theirs
      - /var/lib/docker/volumes:/volumes
      - /data/shop:/own
      - data:/data
  stock:
    image: a:1
    pid: service:web
    volumes: ["/data:/data"]
volumes:
  data: {}
`}), ComposeOptions{})
	require.NoError(t, err)
	const unless = "a device refuses this release unless ALLOW_OTHERS in its mender-app-docker-compose.conf allows it"
	require.ElementsMatch(t, []string{
		`compose.yaml:5: service "web": network_mode container:kiosk-web-1: if the container is another application's, ` + unless,
		`compose.yaml:6: service "web": pid container:kiosk-web-1: if the container is another application's, ` + unless,
		`compose.yaml:7: service "web": volumes_from container:kiosk-web-1:ro: if the container is another application's, ` + unless,
		`compose.yaml:8: service "web": external_links kiosk-web-1:db: if the container is another application's, ` + unless,
		`compose.yaml:9: service "web": /data/mender-app/kiosk/data is where a device has what belongs to applications: ` + unless,
		`compose.yaml:9: service "web": /var/lib/docker/volumes is where a device has what belongs to applications: ` + unless,
		`compose.yaml:17: service "stock": /data is where a device has what belongs to applications: ` + unless,
	}, found.Warnings)
}

// All errors of a file are named at once.
func TestAllErrors(t *testing.T) {
	_, err := Compose(t.Context(), writeFiles(t, map[string]string{"compose.yaml": `
services:
  a: {build: .}
  b:
    image: b:1
    pull_policy: always
  c:
    image: c:1
    volumes: ["v:/v"]
  d:
    image: d:1
    volumes: ["../up:/up"]
`}), ComposeOptions{})
	require.ErrorContains(t, err, `compose.yaml:3: service "a" has build but no image; compose.yaml:6: service "b" has pull_policy: always (the device takes its images from the artifact: use never or missing)`)
	require.ErrorContains(t, err, `compose.yaml:9: service "c": Compose takes the volume v:/v for a path of Windows (give the volume a name of two letters or more)`)
	require.ErrorContains(t, err, `; compose.yaml:12: service "d": bind mount`)
}

// What Compose finds when it compares the parts of a project does not hide the rest, and
// neither does the first error of a service.
func TestAllErrorsBesideThoseOfCompose(t *testing.T) {
	_, err := Compose(t.Context(), writeFiles(t, map[string]string{"compose.yaml": `
services:
  a:
    image: a:1
    env_file: [missing.env, also.env]
    volumes: ["~/x:/x"]
  b:
    pull_policy: always
  c:
    image: c:1
    networks: [nope]
  d:
    image: d:1
    depends_on: [a, b, gone]
`}), ComposeOptions{})
	var all []string
	for _, part := range strings.Split(err.Error(), "; compose.yaml:") {
		all = append(all, strings.TrimPrefix(part, "compose.yaml:"))
	}
	require.Len(t, all, 7, "%v", all)
	for i, want := range []string{
		`service "b" has neither`, `service "c" refers to undefined network nope`, `service "d" depends on undefined service "gone"`,
		`6: service "a": bind mount ~/x`, `5: service "a": env_file missing.env`, `5: service "a": env_file also.env`, `service "b" has pull_policy`,
	} {
		require.Contains(t, all[i], want)
	}
}

// What needs a plugin, or an interface that the device may lack, is noted.
func TestPluginsAndInterfaces(t *testing.T) {
	found, err := Compose(t.Context(), writeFiles(t, map[string]string{"compose.yaml": `
services:
  web: {image: "a:1", networks: [lan, mesh, own], volumes: ["nfs:/nfs", "data:/data"]}
networks:
  lan:
    driver: macvlan
    driver_opts: {parent: eth7}
  mesh: {driver: weave}
  own: {driver: bridge}
volumes:
  nfs: {driver: rexray}
  data: {driver: local}
`}), ComposeOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{
		`compose.yaml:7: network "lan": the device needs the network interface eth7`,
		`compose.yaml:8: network "mesh": the plugin weave must be on the device`,
		`compose.yaml:11: volume "nfs": the plugin rexray must be on the device`,
	}, found.Notes)
	require.Empty(t, found.Warnings)
}

// Compose on a device stops at configs and secrets of a swarm, if a service uses them. All of
// them are named at once.
func TestExternalConfigsAndSecrets(t *testing.T) {
	files := map[string]string{"compose.yaml": `
services:
  web:
    image: a:1
    configs: [site]
    secrets: [pin]
  debug: {image: "a:1", secrets: [other], profiles: [debug]}
configs:
  site: {external: true}
  unused: {external: true}
secrets:
  pin: {external: true}
  other: {external: true}
`}
	_, err := Compose(t.Context(), writeFiles(t, files), ComposeOptions{})
	require.ErrorContains(t, err, `compose.yaml:9: config "site" of service "web" is external: a swarm has such, a device has not; compose.yaml:12: secret "pin" of service "web" is external`)
	require.NotContains(t, err.Error(), "unused")
	require.NotContains(t, err.Error(), "other")
}

func TestContainerNameOfSeveral(t *testing.T) {
	for _, several := range []string{"scale: 2", "deploy: {replicas: 3}"} {
		_, err := Compose(t.Context(), writeFiles(t, map[string]string{"compose.yaml": `
services:
  db: {image: "a:1"}
  web:
    image: a:1
    container_name: front
    ` + several + "\n"}), ComposeOptions{})
		require.ErrorContains(t, err, `compose.yaml:6: service "web" has a container_name and several containers (`)
	}
}
