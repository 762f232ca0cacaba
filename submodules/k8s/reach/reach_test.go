package reach

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/level"
)

// undecided are fields of k8s.io/api that nobody has decided about. They need trusted.
var undecided = []string{"schedulingGroup", "evictionResponders", "volumes.projected.sources.podCertificate",
	"containers.volumeMounts.bindMountOptions", "initContainers.volumeMounts.bindMountOptions", "ephemeralContainers.volumeMounts.bindMountOptions"}

// Every field of a pod that k8s.io/api has is in the table, or needs trusted until somebody
// decides; and the table has no field that a pod has not.
func TestFields(t *testing.T) {
	var missing []string
	var walk func(at string, typ reflect.Type, fields fieldsOf) (seen []string)
	walk = func(at string, typ reflect.Type, fields fieldsOf) (seen []string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			of := f.Type
			for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
				of = of.Elem()
			}
			if name == "" {
				seen = append(seen, walk(at, of, fields)...)
				continue
			}
			seen = append(seen, name)
			decided, ok := fields[name]
			if !ok {
				missing = append(missing, at+name)
				continue
			}
			if decided.of != nil {
				below := walk(at+name+".", of, decided.of)
				for key := range decided.of {
					require.Contains(t, below, key, at+name)
				}
			}
		}
		return seen
	}
	top := walk("", reflect.TypeFor[corev1.PodSpec](), podFields)
	for key := range podFields {
		require.Contains(t, top, key)
	}
	slices.Sort(missing)
	slices.Sort(undecided)
	require.Equal(t, undecided, missing)

	missing = nil
	walk("", reflect.TypeFor[corev1.PersistentVolumeClaimSpec](), claimFields)
	for key := range serviceFields {
		require.Contains(t, walk("", reflect.TypeFor[corev1.ServiceSpec](), serviceFields), key)
	}
	require.Empty(t, missing)
}

func TestNeeds(t *testing.T) {
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {" + spec + "}\n"
	}
	container := func(more string) string { return pod("containers: [{name: c, image: 'a:1', " + more + "}]") }
	object := func(api, kind, more string) string {
		return "apiVersion: " + api + "\nkind: " + kind + "\nmetadata: {name: p}\n" + more + "\n"
	}
	for text, want := range map[string]struct {
		level level.Level
		what  string
	}{
		pod("hostNetwork: false, hostPID: false, containers: [{name: c, image: 'a:1', ports: [{containerPort: 80, hostPort: 80}], securityContext: {privileged: false, capabilities: {add: [CHOWN], drop: [ALL]}}}], volumes: [{name: v, emptyDir: {}}]"): {level.Confined, ""},
		pod("hostNetwork: true"):                                                               {level.HostNetwork, "spec.hostNetwork"},
		pod("hostPID: true"):                                                                   {level.Trusted, "spec.hostPID"},
		pod("hostIPC: true"):                                                                   {level.Trusted, "spec.hostIPC"},
		pod("volumes: [{name: v, hostPath: {path: /etc}}]"):                                    {level.Trusted, "spec.volumes.hostPath: /etc of the node"},
		pod("volumes: [{name: v, csi: {driver: d}}]"):                                          {level.Trusted, "spec.volumes.csi"},
		pod("serviceAccountName: admin"):                                                       {level.Trusted, "spec.serviceAccountName: admin, which the release does not bring"},
		pod("serviceAccountName: default"):                                                     {level.Confined, ""},
		pod("securityContext: {sysctls: [{name: kernel.core_pattern, value: x}]}"):             {level.Trusted, "spec.securityContext.sysctls.name: kernel.core_pattern"},
		pod("securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: x}]}"):               {level.Confined, ""},
		pod("tomorrow: {x: 1}"):                                                                {level.Trusted, "spec.tomorrow, which this version of mender-app has not decided about"},
		container("securityContext: {privileged: true}"):                                       {level.Trusted, "spec.containers.securityContext.privileged"},
		container("securityContext: {procMount: Unmasked}"):                                    {level.Trusted, "spec.containers.securityContext.procMount: Unmasked"},
		container("securityContext: {capabilities: {add: [NET_ADMIN]}}"):                       {level.HostNetwork, "spec.containers.securityContext.capabilities.add: NET_ADMIN"},
		container("securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}"):                   {level.Trusted, "spec.containers.securityContext.capabilities.add: CAP_SYS_ADMIN"},
		container("securityContext: {seccompProfile: {type: Unconfined}}"):                     {level.Trusted, "spec.containers.securityContext.seccompProfile.type: Unconfined"},
		container("resources: {limits: {cpu: 1, 'nvidia.com/gpu': 1}}"):                        {level.Trusted, "spec.containers.resources.limits: the device nvidia.com/gpu"},
		container("volumeDevices: [{name: v, devicePath: /dev/x}]"):                            {level.Trusted, "spec.containers.volumeDevices"},
		container("volumeMounts: [{name: v, mountPath: /x, mountPropagation: Bidirectional}]"): {level.Trusted, "spec.containers.volumeMounts.mountPropagation: Bidirectional"},
		container("livenessProbe: {httpGet: {port: 80, host: 169.254.169.254}}"):               {level.HostNetwork, "spec.containers.livenessProbe.httpGet.host: 169.254.169.254"},
		object("apps/v1", "Deployment", "spec: {template: {metadata: {annotations: {checksum/config: a, prometheus.io/scrape: 'true'}}, spec: {containers: []}}}"): {level.Confined, ""},
		object("apps/v1", "Deployment", "spec: {template: {metadata: {annotations: {io.katacontainers.config: a}}, spec: {containers: []}}}"):                      {level.Trusted, "annotations of its pods: io.katacontainers.config"},
		object("apps/v1", "DaemonSet", "spec: {template: {spec: {hostPID: true}}}"):                                                                                {level.Trusted, "spec.template.spec.hostPID"},
		object("batch/v1", "CronJob", "spec: {jobTemplate: {spec: {template: {spec: {hostIPC: true}}}}}"):                                                          {level.Trusted, "spec.jobTemplate.spec.template.spec.hostIPC"},
		object("v1", "Service", "spec: {externalIPs: [192.0.2.1]}"):                                                                                                {level.HostNetwork, "spec.externalIPs"},
		object("v1", "Service", "spec: {type: LoadBalancer, loadBalancerClass: other.example/lb}"):                                                                 {level.HostNetwork, "spec.loadBalancerClass: other.example/lb"},
		object("v1", "Service", "spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.1}"):                                                                           {level.HostNetwork, "spec.loadBalancerIP: 192.0.2.1"},
		object("v1", "Service", "spec: {type: ExternalName, externalName: localhost}"):                                                                             {level.HostNetwork, "spec.externalName: localhost"},
		object("v1", "Service", "spec: {tomorrow: x}"):                                                                                                             {level.Trusted, "spec.tomorrow, which this version of mender-app has not decided about"},
		pod("priorityClassName: high"): {level.Trusted, "spec.priorityClassName: high"},
		object("v1", "Service", "spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}"):                                                                              {level.Confined, ""},
		object("v1", "PersistentVolumeClaim", "spec: {volumeName: others}"):                                                                                                  {level.Trusted, "spec.volumeName: others"},
		object("v1", "PersistentVolumeClaim", "spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}}"): {level.Confined, ""},
		object("v1", "PersistentVolumeClaim", "spec: {selector: {matchLabels: {app: others}}}"):                                                                              {level.Trusted, "spec.selector"},
		object("v1", "PersistentVolumeClaim", "spec: {dataSourceRef: {kind: PersistentVolumeClaim, name: x, namespace: others}}"):                                            {level.Trusted, "spec.dataSourceRef"},
		object("apps/v1", "StatefulSet", "spec: {volumeClaimTemplates: [{spec: {dataSource: {kind: PersistentVolumeClaim, name: x}}}]}"):                                     {level.Trusted, "spec.volumeClaimTemplates.spec.dataSource"},
		pod("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}}]"):                                                       {level.Confined, ""},
		pod("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {volumeName: others}}}}]"):                                                                          {level.Trusted, "spec.volumes.ephemeral.volumeClaimTemplate.spec.volumeName: others"},
		object("v1", "Secret", "type: kubernetes.io/tls"):                                                                                                                    {level.Confined, ""},
		object("v1", "Secret", ""): {level.Confined, ""},
		// The cluster writes a token of the account into it, whoever brought the account.
		strings.Replace(object("v1", "Secret", "type: kubernetes.io/service-account-token"), "{name: p}", "{name: p, annotations: {kubernetes.io/service-account.name: admin}}", 1): {level.Trusted, "the type kubernetes.io/service-account-token"},
		object("v1", "Secret", "type: bootstrap.kubernetes.io/token"):                                                                               {level.Trusted, "the type bootstrap.kubernetes.io/token"},
		object("v1", "ServiceAccount", "") + "---\n" + strings.Replace(pod("serviceAccountName: p"), "{name: p}", "{name: p, namespace: other}", 1): {level.Trusted, "spec.serviceAccountName: p, which the release does not bring"},
		object("v1", "ServiceAccount", "") + "---\n" + strings.Replace(pod("serviceAccountName: p"), "{name: p}", "{name: p, namespace: shop}", 1):  {level.Confined, ""},
		object("v1", "Namespace", ""):                                                             {level.Trusted, "another name than the application's namespace, shop"},
		object("v1", "PersistentVolume", "spec: {hostPath: {path: /}}"):                           {level.Trusted, `the kind PersistentVolume in "v1"`},
		object("rbac.authorization.k8s.io/v1", "RoleBinding", ""):                                 {level.Trusted, "the kind RoleBinding"},
		object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "webhooks: []"): {level.Trusted, "the kind MutatingWebhookConfiguration"},
		object("example.com/v1", "Anything", ""):                                                  {level.Trusted, "the kind Anything"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
		objects, err := manifest.Read(dir, nil)
		require.NoError(t, err, text)
		needs := Needs(objects, "shop")
		if want.level == level.Confined {
			require.Empty(t, needs, text)
			continue
		}
		require.Len(t, needs, 1, text)
		require.Equal(t, want.level, needs[0].Level, text)
		require.Contains(t, needs[0].What, want.what)
	}
}
