package marks

import (
	"slices"
	"strings"
)

// serviceKinds are those whose pods should run all the time, and those that have one job. A CronJob
// is none: most of the time nothing of it runs.
var serviceKinds = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "Pod"}

// IsService reports whether objects of a kind are services.
func IsService(kind string) bool { return slices.Contains(serviceKinds, kind) }

// ServiceName is the name of a workload as a service, as kubectl writes it: deployment/web.
func ServiceName(kind, name string) string { return strings.ToLower(kind) + "/" + name }
