package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// TestOf: who gets the processors, and what is said of what cannot be done.
func TestOf(t *testing.T) {
	marked := map[string]map[string]string{"web": nil, "db": {labelCPUs: reserved}, "log": {labelCPUs: "no"}}
	for name, c := range map[string]struct {
		set      *submodules.CPUSet
		online   string
		services []string
		says     []string
	}{
		"nothing is told":   {nil, "0-3", nil, nil},
		"named and marked":  {&submodules.CPUSet{CPUs: "2-3", Services: []string{"web"}}, "0-3", []string{"db", "web"}, nil},
		"marked alone":      {&submodules.CPUSet{CPUs: "2-3"}, "0-3", []string{"db"}, nil},
		"none are reserved": {&submodules.CPUSet{Services: []string{"web"}}, "0-3", nil, nil},
		"not known":         {&submodules.CPUSet{CPUs: "9"}, "", []string{"db"}, nil},
		"no such service": {&submodules.CPUSet{CPUs: "1", Services: []string{"shop", "web"}}, "0-3", []string{"db", "web"},
			[]string{"service shop is to run on reserved processors (resources.cpuset), and the compose files do not have it: they have db, log, web"}},
		"no such service, and none are reserved": {&submodules.CPUSet{Services: []string{"shop"}}, "0-3", nil,
			[]string{"service shop is to run on reserved processors (resources.cpuset), and the compose files do not have it: they have db, log, web"}},
		"no such processor": {&submodules.CPUSet{CPUs: "2-4"}, "0-3", nil,
			[]string{"application_cpuset = 2-4: this machine has the processors 0-3: correct it in mender-app.conf"}},
	} {
		services, list, problems := reservedCPUs(c.set, marked, c.online)
		require.Equal(t, c.services, services, name)
		if len(services) > 0 {
			require.Equal(t, c.set.CPUs, list, name)
		}
		var says []string
		for _, err := range problems {
			says = append(says, err.Error())
		}
		require.Equal(t, c.says, says, name)
	}
	services, _, problems := reservedCPUs(&submodules.CPUSet{CPUs: "9"}, map[string]map[string]string{"web": nil}, "0-3")
	require.Empty(t, services)
	require.Empty(t, problems, "nobody asks for them")
}
