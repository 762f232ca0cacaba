package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func writeFiles(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func TestComposeReach(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		".env": "ROOT=/\n",
		"compose.yaml": `
services:
  tame:
    image: a
    volumes: [data:/data, ./conf:/conf]
    env_file: tame.env
    secrets: [own]
    security_opt: ["no-new-privileges:true"]
  strong: {image: a, privileged: true, pid: host, ipc: host, network_mode: host, pull_policy: always}
  root: {image: a, volumes: ["${ROOT}:/host"]}
  files:
    image: a
    volumes: ["/var/run/docker.sock:/s", "~/x:/x", "../other/manifests:/o", bound:/b]
    env_file: ../other/.env
    secrets: [theirs]
    configs: [machine]
    devices: ["/dev/ttyS0:/dev/ttyS0"]
    cap_add: [SYS_ADMIN, NET_ADMIN]
    security_opt: ["seccomp:unconfined"]
    userns_mode: host
    volumes_from: ["container:other"]
  hook:
    image: a
    pre_start: [{image: b, volumes: ["/etc:/etc"], command: ["true"]}]
    post_start: [{command: ["true"], privileged: true}]
  socket: {image: a, use_api_socket: true}
  elsewhere: {image: a, networks: [outer]}
  inactive: {image: a, privileged: true, profiles: [debug]}
volumes:
  data: {}
  bound: {driver_opts: {type: none, o: bind, device: /srv}}
networks:
  outer: {external: true, name: host}
secrets:
  own: {file: ./own}
  theirs: {file: /etc/shadow}
configs:
  machine: {file: /etc/machine-id}
`,
		"tame.env": "", "conf/a": "", "own": "",
	})
	list, err := ComposeReach(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []Reach{
		{By: `service "elsewhere"`, HostNetwork: true},
		{
			By:           `service "files"`,
			Outside:      []string{"../other/.env", "../other/manifests", "/etc/machine-id", "/etc/shadow", "/srv", "/var/run/docker.sock", "container:other", "~/x"},
			Devices:      []string{"/dev/ttyS0"},
			Capabilities: []string{"NET_ADMIN", "SYS_ADMIN"},
			Options:      []string{"seccomp:unconfined", "userns=host"},
		},
		{By: `service "hook"`, Privileged: true, Outside: []string{"/etc"}},
		{By: `service "root"`, HostRoot: true, Outside: []string{"/"}},
		{By: `service "socket"`, Outside: []string{"/var/run/docker.sock"}},
		{By: `service "strong"`, Privileged: true, HostPID: true, HostNetwork: true, HostIPC: true},
	}, list)
}

// The level that an application needs is that of the service that needs most.
func TestComposeLevel(t *testing.T) {
	for text, want := range map[string][]string{
		"services: {web: {image: a, volumes: ['./conf:/conf', 'data:/data']}}\nvolumes: {data: {}}":                         {"confined"},
		"services: {web: {image: a, network_mode: host}, db: {image: b}}":                                                   {"host-network", "service web has network_mode: host"},
		"services: {web: {image: a, network_mode: host}, db: {image: b, pid: host, volumes: ['/run:/run']}}":                {"trusted", "service db has pid: host", "service db has volumes: /run of the device"},
		"services: {web: {image: a}, off: {image: b, privileged: true, profiles: [debug]}}\nvolumes: {unused: {driver: x}}": {"confined"},
	} {
		level, why, err := ComposeLevel(t.Context(), writeFiles(t, map[string]string{"compose.yaml": text}))
		require.NoError(t, err)
		require.Equal(t, want, append([]string{level}, why...), text)
	}
}

func TestKubernetesReach(t *testing.T) {
	dir := writeFiles(t, map[string]string{"a.yaml": `
kind: Deployment
metadata: {name: tame}
spec: {template: {spec: {containers: [{name: c, image: a}], volumes: [{name: v, emptyDir: {}}]}}}
---
kind: List
items:
- kind: DaemonSet
  metadata: {name: strong}
  spec:
    template:
      spec:
        hostPID: true
        hostNetwork: yes
        hostIPC: true
        initContainers: [{name: i, image: a, imagePullPolicy: Always, securityContext: {privileged: true}}]
        containers:
        - name: c
          securityContext: {capabilities: {add: [NET_RAW]}, seccompProfile: {type: Unconfined}}
          volumeDevices: [{name: d, devicePath: /dev/xvda}]
        volumes: [{name: r, hostPath: {path: /}}, {name: l, hostPath: {path: /var/log}}]
---
kind: PersistentVolume
metadata: {name: disk}
spec: {local: {path: /mnt/disk}}
---
kind: Rollout
metadata: {name: unknown-kind}
spec: {template: {spec: {hostNetwork: true, containers: []}}}
`})
	list, err := KubernetesReach(dir)
	require.NoError(t, err)
	require.Equal(t, []Reach{
		{
			By: `DaemonSet "strong"`, Privileged: true, HostPID: true, HostNetwork: true, HostIPC: true, HostRoot: true,
			Outside: []string{"/", "/var/log"}, Devices: []string{"/dev/xvda"}, Capabilities: []string{"NET_RAW"}, Options: []string{"seccomp=unconfined"},
		},
		{By: `PersistentVolume "disk"`, Outside: []string{"/mnt/disk"}},
		{By: `Rollout "unknown-kind"`, HostNetwork: true},
	}, list)
}

// Aliases that multiply are an error in bounded time.
func TestReachOfAliases(t *testing.T) {
	bomb := "services: {a: {image: a}}\nx-a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := byte('b'); c <= 'j'; c++ {
		last := strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9)
		bomb += fmt.Sprintf("x-%c: &%c [%s]\n", c, c, strings.TrimSuffix(last, ", "))
	}
	start := time.Now()
	_, err := ComposeReach(t.Context(), writeFiles(t, map[string]string{"compose.yaml": bomb}))
	require.ErrorContains(t, err, "alias")
	require.Less(t, time.Since(start), 10*time.Second)
}

// Merge keys that lead to the same mappings over and over cost no more than the
// mappings.
func TestReachOfMergeKeys(t *testing.T) {
	bomb := "x0: &x0 {a: b}\n"
	for i := 1; i <= 8; i++ {
		merges := strings.Repeat(fmt.Sprintf("<<: *x%d, ", i-1), 30)
		bomb += fmt.Sprintf("x%d: &x%d {%s}\n", i, i, strings.TrimSuffix(merges, ", "))
	}
	bomb += "kind: PersistentVolume\nspec: {" + strings.TrimSuffix(strings.Repeat("<<: *x8, ", 30), ", ") + "}\n"
	dir := writeFiles(t, map[string]string{"a.yaml": bomb})
	done := make(chan error, 1)
	go func() { _, err := KubernetesReach(dir); done <- err }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("it takes too long")
	}
}
