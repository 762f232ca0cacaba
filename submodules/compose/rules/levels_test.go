package rules

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules/level"
)

// undecided are fields of compose-go that a device refuses, because nobody has decided what
// they may do.
var undecided = []string{"jobs"}

// Every field of compose-go's model is in the table, or is refused until somebody decides.
func TestFields(t *testing.T) {
	var missing []string
	var walk func(path string, typ reflect.Type, fields fieldsOf)
	elem := func(typ reflect.Type) (reflect.Type, bool) {
		each := false
		for {
			switch typ.Kind() {
			case reflect.Pointer:
				typ = typ.Elem()
			case reflect.Slice, reflect.Array, reflect.Map:
				typ, each = typ.Elem(), true
			default:
				return typ, each
			}
		}
	}
	walk = func(path string, typ reflect.Type, fields fieldsOf) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous:
				walk(path, f.Type, fields)
				continue
			case name == "-" || !f.IsExported():
				continue
			case name == "":
				name = f.Name
			}
			at := path + name
			decided, ok := fields[name]
			if !ok {
				missing = append(missing, at)
				continue
			}
			if name == "build" || name == "develop" {
				continue // not used on a device
			}
			if below, each := elem(f.Type); below.Kind() == reflect.Struct && decided.of != nil {
				require.Equal(t, each, decided.each, at)
				walk(at+".", below, decided.of)
			} else if below.Kind() == reflect.Struct {
				t.Errorf("%s has fields of its own, and the table none", at)
			}
		}
	}
	walk("", reflect.TypeFor[types.Project](), projectFields)
	require.Equal(t, undecided, missing, "decide in fields.go what these fields of compose-go may do to a device")
}

// What needs a level is refused below it, and is said; a field that nobody knows is refused
// at each.
func TestLevels(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "link")))
	service := func(more string) string { return `{"services": {"web": {"image": "a", ` + more + `}}}` }
	bind := func(source string) string {
		return service(`"volumes": [{"type": "bind", "source": "` + source + `", "target": "/x", "bind": {}}]`)
	}
	volume := func(options string) string {
		return `{"services": {"web": {"image": "a"}}, "volumes": {"v": {"name": "shop_v", ` + options + `}}}`
	}
	network := func(options string) string {
		return `{"services": {"web": {"image": "a"}}, "networks": {"n": {` + options + `}}}`
	}
	for text, want := range map[string]struct {
		level level.Level
		says  string
	}{
		service(`"command": null, "x-own": {"privileged": true}`):                                                                                                                                                                  {Confined, ""},
		service(`"privileged": false, "pid": "service:db", "ipc": "shareable", "network_mode": "bridge", "cgroup": "private", "oom_score_adj": 100`):                                                                               {Confined, ""},
		service(`"cap_add": ["NET_BIND_SERVICE", "CAP_CHOWN"], "security_opt": ["no-new-privileges:true"], "sysctls": {"net.core.somaxconn": "1"}`):                                                                                {Confined, ""},
		service(`"volumes": [{"type": "bind", "source": "/etc/localtime", "target": "/etc/localtime", "read_only": true}, {"type": "bind", "source": "` + dir + `/conf", "target": "/c"}], "runtime": "runc"`):                     {Confined, ""},
		volume(`"driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": "size=1m,mode=1777,nosuid"}`):                                                                                                                             {Confined, ""},
		service(`"volumes": [{"type": "bind", "source": "` + dir + `/data", "target": "/d"}, {"type": "bind", "source": "` + dir + `/database", "target": "/e"}, {"type": "bind", "source": "` + dir + `/data", "target": "/f"}]`): {Confined, ""},
		service(`"volumes": [{"type": "bind", "source": "` + dir + `/data", "target": "/d", "read_only": true}, {"type": "bind", "source": "` + dir + `/data/in", "target": "/e"}]`):                                               {Confined, ""},
		service(`"ulimits": {"nofile": {"soft": 1, "hard": 2}, "nproc": 9}`):                                                                                                                                                       {Confined, ""},
		volume(`"driver_opts": {"type": "tmpfs", "device": "tmpfs"}`):                                                                                                                                                              {Confined, ""},

		service(`"network_mode": "host"`):   {HostNetwork, "service web has network_mode: host"},
		service(`"cap_add": ["net_admin"]`): {HostNetwork, "service web has cap_add: net_admin"},
		network(`"name": "host"`):           {HostNetwork, "network n has name: host"},
		// The device sends to the network's containers what is meant for these addresses.
		network(`"ipam": {"config": [{"subnet": "8.8.8.0/24"}]}`):                                                        {HostNetwork, "network n has ipam.config.subnet: 8.8.8.0/24"},
		network(`"ipam": {"config": [{"subnet": "172.28.0.0/16"}, {"subnet": "192.0.2.0/25"}]}`):                         {HostNetwork, "network n has ipam.config.subnet: 192.0.2.0/25"},
		network(`"ipam": {"config": [{"subnet": "172.0.0.0/8"}]}`):                                                       {HostNetwork, "subnet: 172.0.0.0/8"},
		network(`"ipam": {"config": [{"subnet": "::/1"}]}`):                                                              {HostNetwork, "subnet: ::/1"},
		network(`"ipam": {"driver": "dhcp"}`):                                                                            {HostNetwork, "network n has ipam.driver: dhcp"},
		network(`"ipam": {"driver": "default", "options": {"a": "b"}}`):                                                  {HostNetwork, "network n has ipam.options"},
		network(`"ipam": {"config": [{"subnet": "x"}]}`):                                                                 {HostNetwork, "subnet: x"},
		network(`"ipam": {"config": [{"subnet": "172.28.0.0/16", "gateway": "172.28.0.1"}, {"subnet": "fd00:1::/64"}]}`): {Confined, ""},
		network(`"driver": "macvlan"`):                                                                                   {HostNetwork, "network n has driver: macvlan"},
		service(`"logging": {"driver": "gelf"}`):                                                                         {HostNetwork, "service web has logging.driver: gelf"},
		network(`"driver_opts": {"com.docker.network.bridge.name": "br0"}`):                                              {HostNetwork, "network n has driver_opts: com.docker.network.bridge.name"},

		service(`"privileged": true`):                                                     {Trusted, "service web has privileged"},
		service(`"post_start": [{"privileged": true}]`):                                   {Trusted, "service web has post_start.privileged"},
		service(`"pre_stop": [{"privileged": true}]`):                                     {Trusted, "service web has pre_stop.privileged"},
		service(`"pre_start": [{"pid": "host"}]`):                                         {Trusted, "service web has pre_start.pid: host"},
		service(`"pid": "host"`):                                                          {Trusted, "pid: host"},
		service(`"pid": "container:x"`):                                                   {Trusted, "pid: container:x"},
		service(`"ipc": "host"`):                                                          {Trusted, "ipc: host"},
		service(`"uts": "host"`):                                                          {Trusted, "uts: host"},
		service(`"userns_mode": "host"`):                                                  {Trusted, "userns_mode: host"},
		service(`"cgroup": "host"`):                                                       {Trusted, "cgroup: host"},
		service(`"cgroup_parent": "/system.slice"`):                                       {Trusted, "cgroup_parent: /system.slice"},
		service(`"network_mode": "container:x"`):                                          {Trusted, "network_mode: container:x"},
		service(`"volumes_from": ["container:x"]`):                                        {Trusted, "volumes_from: container:x"},
		service(`"cap_add": ["ALL"]`):                                                     {Trusted, "cap_add: ALL"},
		service(`"cap_add": ["CAP_SYS_ADMIN"]`):                                           {Trusted, "cap_add: CAP_SYS_ADMIN"},
		service(`"devices": [{"source": "/dev/mem"}]`):                                    {Trusted, "devices"},
		service(`"device_cgroup_rules": ["a *:* rwm"]`):                                   {Trusted, "device_cgroup_rules"},
		service(`"gpus": [{"count": -1}]`):                                                {Trusted, "gpus"},
		service(`"deploy": {"resources": {"reservations": {"devices": [{"count": 1}]}}}`): {Trusted, "deploy.resources.reservations.devices"},
		service(`"use_api_socket": true`):                                                 {Trusted, "use_api_socket"},
		service(`"security_opt": ["seccomp:unconfined"]`):                                 {Trusted, "security_opt: seccomp:unconfined"},
		service(`"security_opt": ["systempaths=unconfined"]`):                             {Trusted, "security_opt: systempaths=unconfined"},
		service(`"sysctls": {"kernel.panic": "1"}`):                                       {Trusted, "sysctls: kernel.panic"},
		service(`"runtime": "sysbox"`):                                                    {Trusted, "runtime: sysbox"},
		service(`"oom_score_adj": -1000`):                                                 {Trusted, "oom_score_adj: -1000"},
		bind("/"):                                                                         {Trusted, "volumes: / of the device"},
		bind("/var/run/docker.sock"):                                                      {Trusted, "volumes: /var/run/docker.sock of the device"},
		bind("/run"):                                                                      {Trusted, "volumes: /run of the device"},
		bind("/etc/localtime"):                                                            {Trusted, "volumes: /etc/localtime of the device"},
		bind(dir + "/link"):                                                               {Trusted, "/link of the device"},
		bind(dir + "/../x"):                                                               {Trusted, "of the device"},
		service(`"volumes": [{"type": "cluster", "source": "c", "target": "/x"}]`):        {Trusted, "of the type cluster"},
		service(`"volumes": [{"type": "bind", "source": "` + dir + `/c", "target": "/c", "bind": {"propagation": "rshared"}}]`): {Trusted, "volumes.bind.propagation: rshared"},
		volume(`"driver_opts": {"type": "overlay", "device": "overlay", "o": "lowerdir=/"}`):                                    {Trusted, "volume v has driver_opts.device: overlay"},
		volume(`"driver_opts": {"type": "ext4", "device": "/dev/sda1"}`):                                                        {Trusted, "volume v has driver_opts.device: /dev/sda1"},
		// The kernel ignores the type of a bind.
		volume(`"driver_opts": {"type": "tmpfs", "device": "/", "o": "bind"}`):             {Trusted, "volume v has driver_opts.device: /"},
		volume(`"driver_opts": {"type": "tmpfs", "device": "/", "o": "size=1m,rbind,ro"}`): {Trusted, "volume v has driver_opts.device: /"},
		volume(`"driver_opts": {"type": "tmpfs", "device": "/x", "o": "remount"}`):         {Trusted, "volume v has driver_opts.device: /x"},
		// A service that may write the directory above puts a link there, and the engine
		// follows it at the next start.
		service(`"volumes": [{"type": "bind", "source": "` + dir + `/data", "target": "/d"}, {"type": "bind", "source": "` + dir + `/data/in", "target": "/e"}]`): {Trusted, "/data/in of the device, where service web may put a link, because it may write into"},
		`{"services": {"a": {"volumes": [{"type": "bind", "source": "` + dir + `/data/in/it", "target": "/e"}]},
			"b": {"pre_start": [{"volumes": [{"type": "bind", "source": "` + dir + `/data/", "target": "/d"}]}]}}}`: {Trusted, "service a has volumes: "},
		service(`"ulimits": {"rtprio": 99}`): {Trusted, "service web has ulimits: rtprio"},
		volume(`"driver": "local-persist"`):  {Trusted, "volume v has driver: local-persist"},

		service(`"provider": {"type": "x"}`):              {never, "service web has provider"},
		service(`"run_on_host": "rm"`):                    {never, "service web has run_on_host, which this version of mender-app does not know"},
		service(`"deploy": {"new": 1}`):                   {never, "service web has deploy.new, which"},
		network(`"new": "x"`):                             {never, "network n has new, which"},
		`{"services": {}, "jobs": {"a": {"image": "a"}}}`: {never, "has jobs, which"},
	} {
		for level := Confined; level <= Trusted; level++ {
			err := CheckLevel([]byte(text), dir, level)
			if level >= want.level {
				require.NoError(t, err, "%s at %s", text, level)
				continue
			}
			require.ErrorAs(t, err, new(*Refused), "%s at %s", text, level)
			require.ErrorContains(t, err, want.says)
			if want.level != never {
				require.ErrorContains(t, err, ", which needs the level "+want.level.String()+", and LEVEL in "+ConfName+" gives this application "+level.String())
			}
		}
	}
}

// What runs may write is not mounted from by the next release either: until it is stopped, it
// can put a link there.
func TestLevelOfWhatRuns(t *testing.T) {
	dir := t.TempDir()
	text := []byte(`{"services": {"web": {"volumes": [{"type": "bind", "source": "` + dir + `/data/in", "target": "/x"}]}}}`)
	require.NoError(t, CheckLevel(text, dir, Confined))
	require.NoError(t, CheckLevel(text, dir, Confined, filepath.Join(dir, "data/in"), filepath.Join(dir, "da")))
	require.NoError(t, CheckLevel(text, dir, Trusted, filepath.Join(dir, "data")))
	require.ErrorContains(t, CheckLevel(text, dir, HostNetwork, filepath.Join(dir, "data")), "/data/in of the device, where a running container may put a link, because it may write into")
}

// REFUSE holds for the containers that run before a service too.
func TestRefuseBeforeService(t *testing.T) {
	for kind, text := range map[string]string{
		"privileged":   `"privileged": true`,
		"host-pid":     `"pid": "host"`,
		"host-network": `"network_mode": "host"`,
		"mount-root":   `"volumes": [{"type": "volume", "source": "v", "target": "/x"}]`,
	} {
		var m Model
		require.NoError(t, json.Unmarshal([]byte(`{"services": {"web": {"image": "a", "pre_start": [{`+text+`}]}}, "volumes": {"v": {"driver_opts": {"type": "none", "o": "bind", "device": "."}}}}`), &m))
		dir := t.TempDir()
		require.NoError(t, m.Check(dir, Settings{}))
		require.ErrorContains(t, m.Check(dir, Settings{Refuse: []string{kind}}), "service web has "+kind)
	}
}
