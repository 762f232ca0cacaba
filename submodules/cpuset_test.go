package submodules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCPUSet: a value is read as it was written, and a wrong one is refused.
func TestCPUSet(t *testing.T) {
	for _, c := range []CPUSet{{CPUs: "2-3", Services: []string{"web", "db"}}, {CPUs: "0,2-4,4095", Services: []string{}}, {Services: []string{"web"}}} {
		got, err := parseCPUSet(c.String())
		require.NoError(t, err)
		require.Equal(t, &c, got)
	}
	none, err := parseCPUSet("")
	require.NoError(t, err)
	require.Nil(t, none)
	require.Equal(t, "- web", (&CPUSet{Services: []string{"web"}}).String())
	for _, text := range []string{"3-1", "0,,1", "0-99999", "-1 web", "2- web", "a web", "0x1", "1;2"} {
		_, err := parseCPUSet(text)
		require.ErrorContains(t, err, "is not a list of processors, such as 2-3,6", text)
	}
}

// TestMissingCPUs: only processors that the machine has can be reserved.
func TestMissingCPUs(t *testing.T) {
	for list, online := range map[string]string{"0": "0", "2-3": "0-3", "0,3-4": "0-1,3-7", "9": ""} {
		require.Empty(t, MissingCPUs(list, online), list)
	}
	for list, online := range map[string]string{"1": "0", "2-4": "0-3", "0,1-3": "0-1,3-7", "4095": "0-63"} {
		require.Equal(t, "application_cpuset = "+list+": this machine has the processors "+online+": correct it in mender-app.conf", MissingCPUs(list, online))
	}
	require.NoError(t, CheckCPUs(OnlineCPUs()), "the kernel's own list is read")
}
