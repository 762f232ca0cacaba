package device

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseRate reads a rate as links have it, "500 kbit/s" or "2.5Mbit/s", in bytes a second.
// "" is 0, no bound.
func parseRate(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	for unit, bits := range map[string]float64{"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9} {
		number, ok := strings.CutSuffix(text, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if bytes := n * bits / 8; err == nil && bytes >= 1000 && bytes < math.MaxInt32*1000 {
			return int64(bytes), nil
		}
	}
	return 0, fmt.Errorf("%q is not a rate of 8 kbit/s or more, such as 2Mbit/s", text)
}
