package compose

import (
	"encoding/json"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
)

// The limits of a service as each Docker Compose prints them, and what becomes of a container
// that has others.
func TestLimits(t *testing.T) {
	pids := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		service string
		has     container.Resources
		changed []string
		anew    bool
		check   func(container.UpdateConfig)
	}{
		"none": {service: `{}`},
		"the same": {service: `{"mem_limit": "67108864", "mem_reservation": "33554432", "cpus": 0.5, "cpu_shares": 512, "pids_limit": 50, "cpuset": "0"}`,
			has: container.Resources{Memory: 64 << 20, MemorySwap: 128 << 20, MemoryReservation: 32 << 20, NanoCPUs: 5e8, CPUShares: 512, PidsLimit: pids(50), CpusetCpus: "0"}},
		"the same, of deploy": {service: `{"deploy": {"resources": {"limits": {"cpus": "0.29", "memory": "52428800", "pids": 7}, "reservations": {"memory": "20971520"}}}}`,
			has: container.Resources{Memory: 50 << 20, NanoCPUs: 289999998, PidsLimit: pids(7), MemoryReservation: 20 << 20}},
		"the engine's default of processes": {service: `{}`, has: container.Resources{PidsLimit: pids(2048)}},
		"more memory": {service: `{"mem_limit": "67108864"}`, has: container.Resources{Memory: 128 << 20, MemorySwap: 256 << 20}, changed: []string{"mem_limit"},
			check: func(u container.UpdateConfig) {
				require.EqualValues(t, []int64{64 << 20, 192 << 20}, []int64{u.Memory, u.MemorySwap})
			}},
		"any swap": {service: `{"mem_limit": 67108864}`, has: container.Resources{Memory: 128 << 20, MemorySwap: -1}, changed: []string{"mem_limit"},
			check: func(u container.UpdateConfig) { require.Zero(t, u.MemorySwap) }},
		"no memory": {service: `{"mem_limit": "67108864"}`, changed: []string{"mem_limit"},
			check: func(u container.UpdateConfig) { require.EqualValues(t, 64<<20, u.Memory) }},
		"a limit that it has not": {service: `{"cpus": 0.5}`, has: container.Resources{NanoCPUs: 7e8, CPUShares: 512}, changed: []string{"cpus", "cpu_shares"}, anew: true},
		"another quota": {service: `{"cpu_quota": 50000, "cpu_period": 100000}`, has: container.Resources{CPUPeriod: 100000, CPUQuota: 70000}, changed: []string{"cpu_quota"},
			check: func(u container.UpdateConfig) { require.EqualValues(t, 50000, u.CPUQuota) }},
		"processes":      {service: `{"pids_limit": 50}`, has: container.Resources{PidsLimit: pids(60)}, changed: []string{"pids_limit"}, check: func(u container.UpdateConfig) { require.EqualValues(t, 50, *u.PidsLimit) }},
		"processors":     {service: `{"cpuset": "0-1"}`, has: container.Resources{CpusetCpus: "0"}, changed: []string{"cpuset"}},
		"all processors": {service: `{}`, has: container.Resources{CpusetCpus: "0"}, changed: []string{"cpuset"}, anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			var s service
			require.NoError(t, json.Unmarshal([]byte(c.service), &s))
			u, changed, anew := s.update(c.has)
			require.Equal(t, c.changed, changed)
			require.Equal(t, c.anew, anew)
			if c.check != nil {
				c.check(u)
			}
		})
	}
}
