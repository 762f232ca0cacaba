package k8s

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// everyKind is a release of the kinds that public sets of manifests have. NS, VERSION and
// DATA are replaced.
const everyKind = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: NS, annotations: {version: VERSION}}
value: 10
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NS, annotations: {version: VERSION}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: NS, annotations: {version: VERSION}}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: NS
  persistentVolumeReclaimPolicy: Retain
  local: {path: DATA}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, annotations: {version: VERSION}}
spec: {storageClassName: NS, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, annotations: {version: VERSION}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web, annotations: {version: VERSION}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: web, annotations: {version: VERSION}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}
subjects: [{kind: ServiceAccount, name: web}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS, annotations: {version: VERSION}}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS, annotations: {version: VERSION}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS}
subjects: [{kind: ServiceAccount, name: web, namespace: NS}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {version: VERSION}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {version: VERSION}
---
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {version: VERSION}}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: NS, annotations: {version: VERSION}}
spec: {controller: shop.example/none}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, annotations: {version: VERSION}}
spec: {ingressClassName: NS, rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, annotations: {version: VERSION}}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, annotations: {version: VERSION}}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, annotations: {version: VERSION}}
spec:
  minReplicas: 1
  maxReplicas: 2
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "kinds:VERSION", imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "kinds:VERSION", imagePullPolicy: Never}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  backoffLimit: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "kinds:VERSION", imagePullPolicy: Never, env: [{name: EXIT, value: "0"}]}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "kinds:VERSION", imagePullPolicy: Never}]}}}}
---
apiVersion: NS.example/v1
kind: Visit
metadata: {name: first}
spec: {version: VERSION}
---
apiVersion: NS.example/v1
kind: Site
metadata: {name: NS}
spec: {version: VERSION}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: visits.NS.example, annotations: {version: VERSION}}
spec:
  group: NS.example
  scope: Namespaced
  names: {plural: visits, kind: Visit}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {version: {type: string}}}}}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.NS.example, annotations: {version: VERSION}}
spec:
  group: NS.example
  scope: Cluster
  names: {plural: sites, kind: Site}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {version: {type: string}}}}}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS, annotations: {version: VERSION}}
webhooks:
- name: visits.NS.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 1
  clientConfig: {service: {name: web, namespace: NS}}
  rules: [{apiGroups: [NS.example], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [visits]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: NS, annotations: {version: VERSION}}
webhooks:
- name: visits.NS.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 1
  clientConfig: {service: {name: web, namespace: NS}}
  rules: [{apiGroups: [NS.example], apiVersions: [v1], operations: [CREATE], resources: [visits]}]
`

// A release with an object of each kind is installed, updated, rolled back and purged, and
// nothing of it is left.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.set.Cluster = "yes"
	m := n.module()
	ctx := context.Background()
	data := t.TempDir()
	require.NoError(t, os.Chmod(data, 0o777))
	n.load(m, n.ns, "kinds:v1", "VERSION=v1")
	n.load(m, n.ns, "kinds:v2", "VERSION=v2")
	n.load(m, n.ns, "kinds:v3", "VERSION=v3", "UNREADY=1")
	release := func(version string) string {
		text := strings.NewReplacer("NS", n.ns, "VERSION", version, "DATA", data).Replace(everyKind)
		return n.manifests(append(strings.Split(text, "\n---\n"), hasty(deployment("web", "kinds:"+version, "      serviceAccountName: web", "      priorityClassName: "+n.ns)))...)
	}
	has := func(version string) {
		t.Helper()
		r, err := (&session{c: n.c, set: n.set, log: n.logf}).readRelease(ctx, n.ns, release(version), true)
		require.NoError(t, err)
		require.Len(t, r.objects, 28)
		for _, p := range r.objects {
			o, err := n.c.Get(ctx, p.id)
			require.NoError(t, err)
			require.NotNil(t, o, "%s", p.id)
			text, err := o.MarshalJSON()
			require.NoError(t, err)
			if p.id.Kind != "Secret" {
				require.Contains(t, string(text), version, "%s", p.id)
			}
		}
		ok, err := m.Healthy(ctx, n.request(n.ns, ""))
		require.NoError(t, err)
		require.True(t, ok, n.log())
	}
	check := func(version string) submodules.Changes {
		t.Helper()
		c, err := reply(ctx, m, submodules.VerbCheck, n.request(n.ns, release(version)), (*session).Check)
		require.NoError(t, err)
		return c
	}
	require.Equal(t, []string{"daemonset/agent", "deployment/web", "job/migrate", "statefulset/db"}, check("v1").Starts)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, release("v1"))))
	has("v1")
	require.Empty(t, check("v1").Restarts)
	require.NoError(t, m.Rollout(ctx, n.request(n.ns, release("v2"))))
	has("v2")
	require.ErrorIs(t, m.Rollout(ctx, n.request(n.ns, release("v3"))), submodules.ErrUnhealthy)
	require.NoError(t, m.Rollback(ctx, submodules.RollbackRequest{Request: n.request(n.ns, release("v2")), FailedDir: release("v3")}))
	has("v2")
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, "")}))
	kept := n.Kubectl("get", "pvc,pv", "-A", "-o", "name", "-l", marks.App+"="+marks.Value(n.ns))
	require.ElementsMatch(t, []string{"persistentvolume/" + n.ns, "persistentvolumeclaim/data"}, strings.Fields(kept), "data stays")
	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(n.ns, ""), Data: true}))
	left, err := n.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: n.ns})
	require.NoError(t, err)
	require.Nil(t, left)
	kinds := n.Kubectl("api-resources", "--verbs=list", "-o", "name")
	for _, line := range strings.Split(n.Kubectl("get", strings.Join(strings.Fields(kinds), ","), "-A", "-o", "name", "-l", marks.App+"="+marks.Value(n.ns)), "\n") {
		if !strings.HasPrefix(line, "Warning: ") { // of kinds that are going to be removed from Kubernetes
			require.Empty(t, line, "nothing is left")
		}
	}
}
