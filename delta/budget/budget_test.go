package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]Budget{
		"30s":         {Time: 30 * time.Second},
		"1m30s@armv7": {Time: 90 * time.Second, Class: "armv7"},
		"12.345s":     {Time: 12345 * time.Millisecond},
		"20G":         {Instructions: 20e9},
		"1.5M":        {Instructions: 1500e3},
	} {
		got, err := Parse(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for s, text := range map[string]string{
		"":           "neither a time",
		"30":         "neither a time",
		"-3s":        "neither a time",
		"0s":         "neither a time",
		"25h":        "neither a time",
		"G":          "neither a time",
		"20G@armv7":  "neither a time",
		"xG":         "no number of instructions",
		"-1G":        "no number of instructions",
		"0M":         "no number of instructions",
		"1e30G":      "no number of instructions",
		"NaNG":       "no number of instructions",
		"1 2G":       "no number of instructions",
		"30s@":       `"" is no class of devices; there are armv7, arm64, amd64`,
		"30s@mips":   "no class of devices",
		"30s@arm":    "no class of devices",
		"@armv7":     "neither a time",
		"30s@armv7@": "no class of devices",
	} {
		_, err := Parse(s)
		require.ErrorContains(t, err, text, s)
	}
}

func TestClassOf(t *testing.T) {
	for platform, want := range map[string]string{
		"linux/arm/v7": "armv7", "linux/arm": "armv7", "linux/arm64": "arm64", "linux/arm64/v8": "arm64", "linux/amd64": "amd64", "linux/riscv64": "", "linux/armada": "", "": "",
	} {
		c, known := ClassOf(platform)
		require.Equal(t, want, c.Name, platform)
		require.Equal(t, want != "", known)
	}
}

// What a budget allows takes its class as long as it says.
func TestOn(t *testing.T) {
	for _, c := range Classes {
		for _, b := range []Budget{{Time: time.Minute}, {Time: time.Minute, Class: c.Name}} {
			n, err := b.On(c.Platform)
			require.NoError(t, err)
			require.Equal(t, time.Minute, c.Time(n))
		}
		n, err := Budget{Instructions: 7}.On(c.Platform)
		require.NoError(t, err)
		require.Equal(t, int64(7), n)
	}
	for b, want := range map[Budget]int64{{Instructions: 7}: 7, {Class: "armv7", Time: time.Minute}: 0} {
		n, err := b.On("linux/riscv64")
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	_, err := Budget{Time: time.Minute}.On("linux/riscv64")
	require.ErrorContains(t, err, "how fast devices of linux/riscv64 are is not known")
}

// More work of any kind takes more instructions.
func TestInstructions(t *testing.T) {
	least := new(Work).Instructions()
	require.Positive(t, least)
	for _, w := range []Work{{Bytes: 1e6}, {Bits: 1e6}, {Literals: 1e6}, {Summed: 1e6}, {Packed: 1e6}, {Deflated: 1e6}} {
		require.Greater(t, w.Instructions(), least+1e6, "%+v", w)
	}
}
