// Package service says which objects of a release are its services, and how they are named.
// The build host and the device have to agree on that.
package service

import (
	"slices"
	"strings"
)

// kinds are those whose pods should run all the time, and those that have one job. A CronJob
// is none: most of the time nothing of it runs.
var kinds = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "Pod"}

// Is reports whether objects of a kind are services.
func Is(kind string) bool { return slices.Contains(kinds, kind) }

// Name is the name of a workload as a service, as kubectl writes it: deployment/web.
func Name(kind, name string) string { return strings.ToLower(kind) + "/" + name }
