package manifest

import "sort"

// ranks order the kinds: objects that others need come first. A kind not listed here
// (usually a custom resource) comes after the workloads, because its controller may
// be one of them.
var ranks = map[string]int{}

func init() {
	for i, kinds := range [][]string{
		{"Namespace"},
		{"CustomResourceDefinition"},
		{"ResourceQuota", "LimitRange", "PriorityClass", "StorageClass", "RuntimeClass"},
		{"ServiceAccount", "Secret", "ConfigMap"},
		{"ClusterRole", "Role"},
		{"ClusterRoleBinding", "RoleBinding"},
		{"PersistentVolume"},
		{"PersistentVolumeClaim"},
		{"Service", "NetworkPolicy", "PodDisruptionBudget"},
		{"DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Pod", "Job", "CronJob"},
		{"HorizontalPodAutoscaler", "Ingress", "IngressClass"},
		{"APIService", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
	} {
		for _, k := range kinds {
			ranks[k] = i * 10
		}
	}
}

// The ranks that a caller waits between.
const (
	RankNamespace = 0
	RankCRD       = 10
	RankClaim     = 70  // PersistentVolumeClaim
	rankOther     = 105 // after HorizontalPodAutoscaler and Ingress, before webhooks
)

// Rank returns the place of a kind in the order: a lower rank is applied first.
// Objects of the same rank may be applied in any order.
func Rank(kind string) int {
	if r, ok := ranks[kind]; ok {
		return r
	}
	return rankOther
}

// Sort sorts objects into the order of application; objects of one rank keep their
// order.
func Sort(objects []Object) {
	sort.SliceStable(objects, func(i, j int) bool { return Rank(objects[i].Kind) < Rank(objects[j].Kind) })
}
