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
		"xG":         "not a number of instructions",
		"-1G":        "not a number of instructions",
		"0M":         "not a number of instructions",
		"1e30G":      "not a number of instructions",
		"NaNG":       "not a number of instructions",
		"1 2G":       "not a number of instructions",
		"30s@":       `"" is not a class of devices; the classes are armv7, arm64, amd64`,
		"30s@mips":   "not a class of devices",
		"30s@arm":    "not a class of devices",
		"@armv7":     "neither a time",
		"30s@armv7@": "not a class of devices",
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
	require.ErrorContains(t, err, "the speed of linux/riscv64 devices is not known")
}

// More work of any kind takes more instructions.
func TestInstructions(t *testing.T) {
	least := new(Work).Instructions()
	require.Positive(t, least)
	for _, w := range []Work{{Bytes: 1e6}, {Bits: 1e6}, {Literals: 1e6}, {Summed: 1e6}, {Packed: 1e6}, {Expanded: 1e6}, {Deflated: 1e6}} {
		require.Greater(t, w.Instructions(), least+1e6, "%+v", w)
	}
}

func TestParseLink(t *testing.T) {
	for s, want := range map[string]Link{
		"10": 10e6, "10Mbit/s": 10e6, "10Mbit": 10e6, "0.5": 500e3, "250kbit/s": 250e3, "9.6kbit/s": 9600, "1Gbit/s": 1e9, "2.5 Mbit/s": 2.5e6, "1kbit": 1e3,
	} {
		got, err := ParseLink(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
		again, err := ParseLink(got.String())
		require.NoError(t, err, s)
		require.Equal(t, want, again, s)
	}
	for _, s := range []string{"", "0", "-1", "fast", "10MB/s", "10Mbits", "10/s/s", "999bit", "0.9kbit/s", "2000Gbit/s", "NaN", "Inf", "1e300Gbit", "Mbit/s", "1 2Mbit"} {
		_, err := ParseLink(s)
		require.ErrorContains(t, err, "is not a rate from 1 kbit/s to 1000 Gbit/s", s)
	}
	require.Equal(t, "10 Mbit/s", DefaultLink.String())
	require.Equal(t, "9.6 kbit/s", Link(9600).String())
	require.Equal(t, "1 Gbit/s", Link(1e9).String())
}

// What a byte costs is what the device does while it arrives.
func TestByteCost(t *testing.T) {
	require.Equal(t, 8*time.Second, DefaultLink.Time(10e6))
	require.Equal(t, maxTime, Link(1e3).Time(1<<50))
	for _, c := range Classes {
		require.Equal(t, c.Time(1e6*DefaultLink.ByteCost(c)), DefaultLink.Time(1e6))
		require.Greater(t, Link(1e6).ByteCost(c), DefaultLink.ByteCost(c))
	}
	require.EqualValues(t, 632, DefaultLink.ByteCost(Classes[0]))
	require.EqualValues(t, 1, Link(1e12).ByteCost(Classes[0]))

	require.Equal(t, Times{Link: "10 Mbit/s", Download: 1.6, Class: "armv7", Decode: 2}, DefaultLink.TimesOn("linux/arm/v7", 2e6, 1580e6))
	require.Equal(t, Times{Link: "10 Mbit/s", Download: 1.6}, DefaultLink.TimesOn("linux/riscv64", 2e6, 1580e6))
	require.Equal(t, Times{Link: "250 kbit/s", Download: 64}, Link(250e3).TimesOn("linux/arm64", 2e6, 0))
}
