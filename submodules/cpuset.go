package submodules

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// CPUSet says which processors of the machine are reserved, and for which services.
type CPUSet struct {
	CPUs     string   // such as "2-3,6"; "" if the device reserves none
	Services []string // the services that the release's policy names
}

// noCPUs stands for no processors in MENDER_APP_CPUSET.
const noCPUs = "-"

// String is the value of MENDER_APP_CPUSET.
func (c *CPUSet) String() string {
	cpus := c.CPUs
	if cpus == "" {
		cpus = noCPUs
	}
	return strings.Join(append([]string{cpus}, c.Services...), " ")
}

// parseCPUSet reads a value of MENDER_APP_CPUSET; "" is nil.
func parseCPUSet(text string) (*CPUSet, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, nil
	}
	c := &CPUSet{Services: words[1:]}
	if words[0] == noCPUs {
		return c, nil
	}
	c.CPUs = words[0]
	return c, CheckCPUs(c.CPUs)
}

// CheckCPUs refuses a text that is not a list of processors in the form of the kernel's
// cpusets, such as 2-3,6 (cpuset(7), "List format").
func CheckCPUs(list string) error {
	const longest = 1000
	if len(list) > longest {
		return fmt.Errorf("a list of processors may have %d bytes", longest)
	}
	for part := range strings.SplitSeq(list, ",") {
		if _, _, ok := span(part); !ok {
			return fmt.Errorf("%q is not a list of processors, such as 2-3,6", list)
		}
	}
	return nil
}

// span reads a part of a list of processors: 6, or 2-3.
func span(part string) (low, high uint64, ok bool) {
	const most = 4095
	first, last, both := strings.Cut(part, "-")
	if !both {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 16)
	high, err2 := strconv.ParseUint(last, 10, 16)
	return low, high, err == nil && err2 == nil && low <= high && high <= most
}

// OnlineCPUs lists the processors of this machine; "" if unknown.
func OnlineCPUs() string {
	data, err := os.ReadFile("/sys/devices/system/cpu/online")
	list := strings.TrimSpace(string(data))
	if err != nil || CheckCPUs(list) != nil {
		return ""
	}
	return list
}

// MissingCPUs returns an error text if a list names processors that are not online; ""
// otherwise, or if the online ones are unknown. The engine would refuse to make such a
// container.
func MissingCPUs(list, online string) string {
	if online == "" {
		return ""
	}
	there := map[uint64]bool{}
	for part := range strings.SplitSeq(online, ",") {
		low, high, _ := span(part)
		for cpu := low; cpu <= high; cpu++ {
			there[cpu] = true
		}
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, _ := span(part)
		for cpu := low; cpu <= high; cpu++ {
			if !there[cpu] {
				return fmt.Sprintf("application_cpuset = %s: this machine has the processors %s: correct it in mender-app.conf", list, online)
			}
		}
	}
	return ""
}
