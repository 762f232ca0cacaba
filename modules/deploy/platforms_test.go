package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	for machine, want := range map[string]string{
		"x86_64": "linux/amd64 linux/386", "aarch64": "linux/arm64 linux/arm/v7", "armv7l": "linux/arm/v7",
		"armv8l": "linux/arm/v7", "armv6l": "linux/arm/v6", "armv5tel": "linux/arm/v5", "i686": "linux/386",
		"riscv64": "linux/riscv64",
	} {
		var got []string
		for _, p := range platformsOf(machine, "") {
			got = append(got, p.String())
		}
		require.Equal(t, want, strings.Join(got, " "), machine)
	}
	v2 := "flags : cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3\n"
	require.Equal(t, "linux/amd64/v2", platformsOf("x86_64", v2)[0].String())
	require.NotEmpty(t, Platforms())
}
