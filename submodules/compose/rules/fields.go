package rules

// The table of the model's fields: for each one somebody has decided what it may do to the
// device. TestFields compares it with compose-go. A field that is in neither is refused on a
// device.

// free are fields that only concern the containers themselves.
func free(names ...string) fieldsOf {
	f := fieldsOf{}
	for _, n := range names {
		f[n] = field{}
	}
	return f
}

// with adds fields.
func (f fieldsOf) with(more fieldsOf) fieldsOf {
	for k, v := range more {
		f[k] = v
	}
	return f
}

var devices = field{of: free("capabilities", "driver", "count", "device_ids", "options"), each: true, check: needs(Trusted)}

func resources() field {
	return field{of: free("cpus", "memory", "pids").with(fieldsOf{
		"devices":           devices,
		"generic_resources": {of: fieldsOf{"discrete_resource_spec": {of: free("kind", "value")}}, each: true},
	})}
}

var hooks = field{of: free("command", "user", "working_dir", "environment").with(fieldsOf{"privileged": {check: needs(Trusted)}}), each: true}

var fileUse = field{of: free("source", "target", "uid", "gid", "mode"), each: true}

// throttle: compose-go gives these fields no names for JSON.
var throttle = field{of: free("path", "rate", "weight", "Path", "Rate", "Weight"), each: true}

var swarmUpdate = field{of: free("parallelism", "delay", "failure_action", "monitor", "max_failure_ratio", "order")}

// containerFields are those of everything that becomes a container.
func containerFields() fieldsOf {
	return free(
		"cap_drop", "command", "cpu_count", "cpu_percent", "cpu_period", "cpu_quota", "cpu_shares", "cpus", "cpuset",
		"dns", "dns_opt", "dns_search", "domainname", "entrypoint", "environment", "extra_hosts", "group_add", "hostname", "image", "init",
		"labels", "label_file", "mac_address", "mem_limit", "mem_reservation", "mem_swappiness", "memswap_limit",
		"per_replica", "pids_limit", "platform", "pull_policy", "pull_refresh_after", "read_only", "shm_size", "stop_grace_period", "stop_signal",
		"storage_opt", "tmpfs", "umask", "user", "working_dir",
	).with(fieldsOf{
		"annotations": {check: needs(Trusted)}, // a runtime may run programs for them
		"blkio_config": {of: fieldsOf{
			"weight": {}, "weight_device": throttle, "device_read_bps": throttle, "device_read_iops": throttle, "device_write_bps": throttle, "device_write_iops": throttle,
		}},
		"cap_add":             {check: capabilities},
		"cgroup":              {check: but(Trusted, "private")},
		"cgroup_parent":       {check: needs(Trusted)},
		"configs":             fileUse,
		"cpu_rt_period":       {check: needs(Trusted)}, // other processes wait for it
		"cpu_rt_runtime":      {check: needs(Trusted)},
		"credential_spec":     {of: free("config", "file", "registry"), check: needs(Trusted)},
		"device_cgroup_rules": {check: needs(Trusted)},
		"devices":             {of: free("source", "target", "permissions"), each: true, check: needs(Trusted)},
		"env_file":            {of: free("path", "required", "format"), each: true},
		"gpus":                devices,
		"ipc":                 {check: but(Trusted, "none", "private", "shareable", "service:")},
		"isolation":           {check: needs(Trusted)},
		"log_driver":          {check: but(HostNetwork, "json-file", "local", "none", "journald")},
		"log_opt":             {},
		"logging":             {of: free("options").with(fieldsOf{"driver": {check: but(HostNetwork, "json-file", "local", "none", "journald")}})},
		"models":              {of: free("endpoint_var", "model_var"), each: true, check: needs(never)},
		"network_mode":        {check: networkMode},
		"networks": {of: free("aliases", "gw_priority", "interface_name", "ipv4_address", "ipv6_address", "link_local_ips", "mac_address", "priority",
			"use_service_name_alias").with(fieldsOf{"driver_opts": {check: networkOptions}}), each: true},
		"oom_kill_disable": {check: needs(Trusted)},
		"oom_score_adj":    {check: negative},
		"pid":              {check: but(Trusted, "private", "service:")},
		"privileged":       {check: needs(Trusted)},
		"runtime":          {check: but(Trusted, "runc", "io.containerd.runc.v2")},
		"secrets":          fileUse,
		"security_opt":     {check: but(Trusted, "no-new-privileges", "no-new-privileges:true", "no-new-privileges=true")},
		"sysctls":          {check: sysctls},
		"ulimits":          {of: free("single", "soft", "hard"), each: true, check: ulimits},
		"use_api_socket":   {check: needs(Trusted)},
		"userns_mode":      {check: needs(Trusted)},
		"uts":              {check: needs(Trusted)},
		"volume_driver":    {check: but(Trusted, "local")},
		"volumes": {of: free("type", "source", "target", "read_only", "consistency").with(fieldsOf{
			"bind": {of: free("create_host_path", "recursive", "selinux").with(fieldsOf{
				"propagation": {check: but(Trusted, "private", "rprivate", "slave", "rslave")},
			})},
			"volume": {of: free("labels", "nocopy", "subpath")},
			"tmpfs":  {of: free("size", "mode")},
			"image":  {of: free("subpath")},
		}), each: true, check: mounts},
		"volumes_from": {check: container},
	})
}

// serviceFields: build says how an image was made elsewhere, and develop what is copied into
// a container while somebody works on it; a device does neither.
func serviceFields() fieldsOf {
	return containerFields().with(free(
		"attach", "build", "container_name", "develop", "dockerfile", "expose", "external_links", "links", "profiles", "restart", "scale", "stdin_open", "tty",
	)).with(fieldsOf{
		"depends_on": {of: free("condition", "restart", "required"), each: true},
		"deploy": {of: free("mode", "replicas", "labels", "endpoint_mode").with(fieldsOf{
			"update_config": swarmUpdate, "rollback_config": swarmUpdate,
			"resources":      {of: fieldsOf{"limits": resources(), "reservations": resources()}},
			"restart_policy": {of: free("condition", "delay", "max_attempts", "window")},
			"placement": {of: free("constraints", "max_replicas_per_node").with(fieldsOf{
				"preferences": {of: free("spread"), each: true},
			})},
		})},
		"extends":     {of: free("file", "service")},
		"healthcheck": {of: free("test", "timeout", "interval", "retries", "start_period", "start_interval", "disable")},
		"net":         {check: networkMode},
		"ports":       {of: free("name", "mode", "host_ip", "target", "published", "protocol", "app_protocol"), each: true},
		"post_start":  hooks,
		"pre_start":   {of: containerFields(), each: true},
		"pre_stop":    hooks,
		"provider":    {of: free("type", "options"), check: needs(never)},
	})
}

var objectFields = free("name", "file", "environment", "content", "external", "labels", "driver", "driver_opts", "template_driver")

// projectFields are those of a project. Nobody has decided about jobs.
var projectFields = fieldsOf{
	"name":     {},
	"services": {of: serviceFields(), each: true, kind: "service"},
	"networks": {of: free("external", "internal", "attachable", "labels", "enable_ipv4", "enable_ipv6").with(fieldsOf{
		"name":        {check: networkName},
		"driver":      {check: networkDriver},
		"driver_opts": {check: networkOptions},
		"ipam": {of: fieldsOf{
			"driver":  {check: but(HostNetwork, "default")}, // another one is a plugin
			"options": {check: needs(HostNetwork)},
			"config":  {of: free("gateway", "ip_range", "aux_addresses").with(fieldsOf{"subnet": {check: subnet}}), each: true},
		}},
	}), each: true, kind: "network"},
	"volumes": {of: free("name", "external", "labels").with(fieldsOf{
		"driver":      {check: but(Trusted, "local")},
		"driver_opts": {check: volumeOptions},
	}), each: true, kind: "volume"},
	"secrets": {of: objectFields, each: true, kind: "secret"},
	"configs": {of: objectFields, each: true, kind: "config"},
	"models":  {of: free("name", "model", "context_size", "runtime_flags"), each: true, kind: "model"}, // of no use to anybody without the services' models
}
