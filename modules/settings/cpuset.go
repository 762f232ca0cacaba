package settings

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file tells for which services of a release processors are reserved. The
// device says which processors, and the release's policy which services.

// CPUSet is what a sub-module is told of a release; nil: the device reserves no processors,
// and the policy names no services. cpus are those that the device reserves.
func CPUSet(log *slog.Logger, cpus, app string, r *store.Release) *submodules.CPUSet {
	var services []string
	if r.Policy != nil {
		services = facts.PolicyOf(log, app, r).Reserved()
	}
	if cpus == "" && len(services) == 0 {
		return nil
	}
	return &submodules.CPUSet{CPUs: cpus, Services: services}
}

// LacksCPUSet refuses a policy that reserves processors where the sub-module cannot.
func LacksCPUSet(p *policy.Policy, app string, info submodules.Info, orchestrator string) error {
	if len(p.Reserved()) == 0 || info.Has(submodules.FeatureCPUSet) {
		return nil
	}
	return fmt.Errorf("resources.cpuset of %s: the sub-module %s cannot reserve processors for services: update it, or remove the key", app, orchestrator)
}

// MissingCPUs says that a policy names services and the device reserves no processors for them;
// "" otherwise.
func MissingCPUs(cpus, app string, p *policy.Policy) string {
	if cpus != "" || len(p.Reserved()) == 0 {
		return ""
	}
	return fmt.Sprintf("resources.cpuset of %s: no processors are reserved on this device, so %s may run on any: set application_cpuset in mender-app.conf", app, strings.Join(p.Reserved(), ", "))
}

// WarnOfCPUs logs what Missing says.
func WarnOfCPUs(log *slog.Logger, cpus, app string, p *policy.Policy) {
	if text := MissingCPUs(cpus, app, p); text != "" {
		log.Warn(text)
	}
}
