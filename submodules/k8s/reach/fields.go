package reach

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/submodules/level"
)

// The tables of kinds and of the fields of a pod. TestFields compares them with k8s.io/api.

// kinds are the kinds that reach nothing beyond what their pods do, with what else needs
// more. The others change the cluster or who may do what in it: RBAC, admission webhooks,
// definitions, volumes of the node, custom resources.
var kinds = map[string]func(w *walker, key string, value any){
	"/Pod": nil, "/ReplicationController": nil, "/PodTemplate": nil,
	"apps/Deployment": nil, "apps/ReplicaSet": nil, "apps/StatefulSet": claims, "apps/DaemonSet": nil, "apps/ControllerRevision": nil,
	"batch/Job": nil, "batch/CronJob": nil,
	"/ConfigMap": nil, "/Secret": secret, "/ServiceAccount": nil, "/LimitRange": nil, "/ResourceQuota": nil,
	"/Namespace": ownNamespace, "/Service": service, "/PersistentVolumeClaim": claim,
	"networking.k8s.io/Ingress": nil, "networking.k8s.io/NetworkPolicy": nil,
	"policy/PodDisruptionBudget": nil, "autoscaling/HorizontalPodAutoscaler": nil, "coordination.k8s.io/Lease": nil,
}

func ownNamespace(w *walker, _ string, _ any) {
	if w.o.Name != w.namespace {
		w.need(level.Trusted, "another name than the application's namespace, %s", w.namespace)
	}
}

// serviceFields: an external address takes the traffic of a node to that address, a load
// balancer of the author's choice may do so, and an Ingress controller, which may be in the
// network of the node, sends to an external name.
var serviceFields = free(
	"ports", "selector", "clusterIP", "clusterIPs", "type", "sessionAffinity", "sessionAffinityConfig", "ipFamilies", "ipFamilyPolicy",
	"externalTrafficPolicy", "internalTrafficPolicy", "healthCheckNodePort", "publishNotReadyAddresses", "loadBalancerSourceRanges",
	"allocateLoadBalancerNodePorts", "trafficDistribution",
).with(fieldsOf{
	"externalIPs": onNetwork, "loadBalancerIP": onNetwork, "loadBalancerClass": onNetwork, "externalName": onNetwork,
})

func service(w *walker, key string, v any) {
	if spec, ok := v.(map[string]any); ok {
		w.object(serviceFields, key+".", spec)
	}
}

// secret: the cluster fills in some types, or lets in who knows what is in them.
func secret(w *walker, _ string, _ any) {
	var o struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(w.o.JSON, &o) != nil || strings.Contains(o.Type, "kubernetes.io/") && !slices.Contains(plainSecrets, o.Type) {
		w.need(level.Trusted, "the type %s", o.Type)
	}
}

// plainSecrets are types of Kubernetes that only say what their data looks like.
var plainSecrets = []string{"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth", "kubernetes.io/tls"}

// claimFields: a claim that names its volume, or how to find one, takes one that somebody
// else may have made, and one with a source has the data of another.
var claimFields = free("accessModes", "resources", "storageClassName", "volumeMode", "volumeAttributesClassName").with(fieldsOf{
	"volumeName": trusted, "selector": trusted, "dataSource": trusted, "dataSourceRef": trusted,
})

func claim(w *walker, key string, v any) {
	if spec, ok := v.(map[string]any); ok {
		w.object(claimFields, key+".", spec)
	}
}

func claims(w *walker, key string, v any) {
	spec, _ := v.(map[string]any)
	for _, t := range list(spec["volumeClaimTemplates"]) {
		if m, ok := t.(map[string]any); ok {
			claim(w, key+".volumeClaimTemplates.spec", m["spec"])
		}
	}
}

// free are fields that only concern the pod itself.
func free(names ...string) fieldsOf {
	f := fieldsOf{}
	for _, n := range names {
		f[n] = field{}
	}
	return f
}

func (f fieldsOf) with(more fieldsOf) fieldsOf {
	maps.Copy(f, more)
	return f
}

var trusted, onNetwork = field{check: needs(level.Trusted)}, field{check: needs(level.HostNetwork)}

var podFields = free(
	"restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy", "nodeSelector", "automountServiceAccountToken",
	"nodeName", "shareProcessNamespace", "imagePullSecrets", "hostname", "subdomain", "affinity", "schedulerName", "tolerations", "hostAliases",
	"priority", "dnsConfig", "readinessGates", "enableServiceLinks", "preemptionPolicy", "overhead", "topologySpreadConstraints",
	"setHostnameAsFQDN", "os", "hostUsers", "schedulingGates", "hostnameOverride",
).with(fieldsOf{
	"hostNetwork":         onNetwork,
	"hostPID":             trusted,
	"hostIPC":             trusted,
	"runtimeClassName":    trusted,
	"resourceClaims":      trusted,
	"priorityClassName":   trusted, // pods of others may have to go for it
	"serviceAccountName":  {check: account},
	"serviceAccount":      {check: account},
	"resources":           {of: resourceFields},
	"containers":          {of: containerFields},
	"initContainers":      {of: containerFields},
	"ephemeralContainers": {of: free("targetContainerName").with(containerFields)},
	"volumes":             {of: volumeFields},
	"securityContext": {of: free("runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "supplementalGroupsPolicy", "fsGroup", "fsGroupChangePolicy").with(fieldsOf{
		"seLinuxOptions": trusted, "seLinuxChangePolicy": trusted, "windowsOptions": trusted,
		"sysctls": {of: free("value").with(fieldsOf{"name": {check: sysctl}})}, "seccompProfile": profile, "appArmorProfile": profile,
	})},
})

// profile: another profile than that of the runtime is none, or one of the node.
var profile = field{of: fieldsOf{"type": {check: but(level.Trusted, "RuntimeDefault")}, "localhostProfile": trusted}}

var resourceFields = fieldsOf{"limits": {check: quantities}, "requests": {check: quantities}, "claims": trusted}

// asks are what the node itself asks in a probe or a hook, so a host is one that the node
// reaches.
func asks() fieldsOf {
	host := fieldsOf{"host": onNetwork}
	return fieldsOf{
		"exec": {}, "httpGet": {of: free("path", "port", "scheme", "protocol", "httpHeaders").with(host)}, "tcpSocket": {of: free("port").with(host)},
	}
}

var probe = field{of: free("grpc", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds").with(asks())}

var hook = field{of: free("sleep").with(asks())}

var containerFields = free(
	"name", "image", "command", "args", "workingDir", "envFrom", "env", "resizePolicy", "restartPolicy", "restartPolicyRules",
	"terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "stdin", "stdinOnce", "tty",
).with(fieldsOf{
	"ports":          {of: free("name", "hostPort", "containerPort", "protocol", "hostIP")}, // published ports, as Compose has them
	"resources":      {of: resourceFields},
	"volumeDevices":  trusted,
	"livenessProbe":  probe,
	"readinessProbe": probe,
	"startupProbe":   probe,
	"lifecycle":      {of: free("stopSignal").with(fieldsOf{"postStart": hook, "preStop": hook})},
	"volumeMounts": {of: free("name", "readOnly", "recursiveReadOnly", "mountPath", "subPath", "subPathExpr").with(fieldsOf{
		"mountPropagation": {check: but(level.Trusted, "None", "HostToContainer")},
	})},
	"securityContext": {of: free("runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation").with(fieldsOf{
		"capabilities": {of: free("drop").with(fieldsOf{"add": {check: capabilities}})},
		"privileged":   trusted, "seLinuxOptions": trusted, "windowsOptions": trusted,
		"procMount":      {check: but(level.Trusted, "Default")},
		"seccompProfile": profile, "appArmorProfile": profile,
	})},
})

// volumeFields: what is not here is mounted by the node from a path of its own, by a driver or
// over the network.
var volumeFields = free("name", "emptyDir", "secret", "configMap", "downwardAPI", "persistentVolumeClaim", "image").with(fieldsOf{
	"ephemeral": {of: fieldsOf{"volumeClaimTemplate": {of: free("metadata").with(fieldsOf{"spec": {of: claimFields}})}}},
	"projected": {of: free("defaultMode", "defaultUser").with(fieldsOf{"sources": {of: free("secret", "downwardAPI", "configMap", "serviceAccountToken", "clusterTrustBundle")}})},
	"hostPath":  {check: hostPath},
})

// external are volume sources that nobody needs to decide about one by one.
var external = []string{
	"gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd", "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile",
	"vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos", "csi",
}

func init() {
	for _, name := range external {
		volumeFields[name] = trusted
	}
}

func hostPath(w *walker, key string, v any) {
	m, _ := v.(map[string]any)
	w.need(level.Trusted, "%s: %v of the node", key, m["path"])
}

func account(w *walker, key string, v any) {
	if name, ok := v.(string); !ok || name != "default" && !w.accounts[cmp.Or(w.o.Namespace, w.namespace)+"/"+name] {
		w.need(level.Trusted, "%s: %v, which the release does not bring", key, v)
	}
}

// quantities: another resource than these is a device.
func quantities(w *walker, key string, v any) {
	m, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, name) && !strings.HasPrefix(name, "hugepages-") {
			w.need(level.Trusted, "%s: the device %s", key, name)
		}
	}
}

func capabilities(w *walker, key string, v any) {
	for _, e := range list(v) {
		text, _ := e.(string)
		if at := level.OfCapability(text); at > level.Confined {
			w.need(at, "%s: %v", key, e)
		}
	}
}

// safeSysctls are those that a kubelet allows every pod (Kubernetes, "Safe and unsafe sysctls").
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

func sysctl(w *walker, key string, v any) { but(level.Trusted, safeSysctls...)(w, key, v) }

// annotated are domains whose annotations no runtime acts on. A name without a domain of the
// DNS, such as checksum/config, is the author's own.
var annotated = []string{"prometheus.io", "kubectl.kubernetes.io", "app.kubernetes.io", "helm.sh", "meta.helm.sh", "mender-app.io"}

// annotations: a runtime or a plugin of the node may run programs for an annotation of a pod.
func annotations(w *walker, key string, m map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		domain, _, ok := strings.Cut(name, "/")
		if strings.Contains(domain, ".") && (!ok || !slices.Contains(annotated, domain)) {
			w.need(level.Trusted, "%s: %s", key, name)
		}
	}
}
