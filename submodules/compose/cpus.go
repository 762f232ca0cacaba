package compose

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/submodules"
)

// A service with the label labelCPUs of the value reserved asks for them by itself.
const (
	labelCPUs = "mender-app.cpuset"
	reserved  = "reserved"
)

// reservedCPUs returns the services that run on processors that the device reserves, and which
// processors. labels has the labels of every service. online are the processors of the
// machine; "": they are not known. What cannot be done is left out, and among the problems.
func reservedCPUs(c *submodules.CPUSet, labels map[string]map[string]string, online string) (services []string, list string, problems []error) {
	if c == nil {
		return nil, "", nil
	}
	all := slices.Sorted(maps.Keys(labels))
	for _, name := range c.Services {
		if _, ok := labels[name]; !ok {
			problems = append(problems, submodules.Mark(fmt.Errorf("service %s is to run on reserved processors (resources.cpuset), and the compose files do not have it: they have %s", name, strings.Join(all, ", ")), submodules.ErrContent))
		}
	}
	if c.CPUs == "" {
		return nil, "", problems
	}
	for _, name := range all {
		if slices.Contains(c.Services, name) || labels[name][labelCPUs] == reserved {
			services = append(services, name)
		}
	}
	if missing := submodules.MissingCPUs(c.CPUs, online); missing != "" && len(services) > 0 {
		problems = append(problems, errors.New(missing))
		services = nil
	}
	return services, c.CPUs, problems
}

// pinned are the processors that containers run on, by their ID; "" for all.
func pinned(all []container.InspectResponse) map[string]string {
	list := map[string]string{}
	for _, c := range all {
		if c.ContainerJSONBase != nil && c.HostConfig != nil {
			list[c.ID] = c.HostConfig.CpusetCpus
		}
	}
	return list
}
