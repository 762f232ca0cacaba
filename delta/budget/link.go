package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Link is how many bits arrive on a device in a second.
type Link int64

// DefaultLink is that of devices of which nothing else is known.
const DefaultLink Link = 10e6

const (
	minLink Link = 1e3
	maxLink Link = 1e12
)

// linkUnits are the units of a Link; the first one that fits a text counts.
var linkUnits = []struct {
	name string
	bits float64
}{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"", 1e6}}

// ParseLink reads a number of Mbit/s, as 10, or one with its unit, as 250kbit/s.
func ParseLink(s string) (Link, error) {
	text := strings.TrimSuffix(s, "/s")
	for _, u := range linkUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSuffix(number, " "), 64)
		if n *= u.bits; err == nil && n >= float64(minLink) && n <= float64(maxLink) {
			return Link(math.Round(n)), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a rate from 1 kbit/s to 1000 Gbit/s, such as 250kbit/s, 10Mbit/s or 1Gbit/s", s)
}

// String returns the rate in the greatest unit of which it has one.
func (l Link) String() string {
	for i := len(linkUnits) - 2; i >= 0; i-- {
		if u := linkUnits[i]; float64(l) >= u.bits || i == 0 {
			return strconv.FormatFloat(float64(l)/u.bits, 'f', -1, 64) + " " + u.name + "/s"
		}
	}
	panic("unreachable")
}

// Time returns how long so many bytes take.
func (l Link) Time(bytes int64) time.Duration {
	return rounded(float64(bytes) * 8 / float64(l))
}

// ByteCost returns how many instructions a device of the class executes while a byte arrives, and
// at least 1.
func (l Link) ByteCost(c Class) int64 {
	return max(1, int64(float64(c.Speed)*8/float64(l)))
}

// Times is how long a device takes to have an artifact.
type Times struct {
	Link     string  `json:"link"` // the rate at which it arrives
	Download float64 `json:"download_seconds"`
	// Class is that of the device; Class and Decode are not there if nothing is decoded, or
	// if how fast the device is is not known.
	Class  string  `json:"class,omitempty"`
	Decode float64 `json:"decode_seconds,omitempty"`
}

// TimesOn returns how long a device of a platform takes for an artifact of so many bytes,
// whose deltas take so many instructions to decode.
func (l Link) TimesOn(platform string, bytes, instructions int64) Times {
	t := Times{Link: l.String(), Download: l.Time(bytes).Seconds()}
	if c, known := ClassOf(platform); known && instructions > 0 {
		t.Class, t.Decode = c.Name, c.Time(instructions).Seconds()
	}
	return t
}
