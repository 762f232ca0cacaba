package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "8kbit/s": 1000, "2Mbit/s": 250_000, "2.5 Mbit/s": 312_500, "1Gbit/s": 125_000_000} {
		got, err := parseRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"0", "2", "2M", "2MB/s", "-1Mbit/s", "7kbit/s", "NaNMbit/s", "InfMbit/s", "1e300Gbit/s", "Mbit/s", "2 mbit/s"} {
		_, err := parseRate(text)
		require.Error(t, err, text)
	}
}
