// Package budget estimates how long devices take to decode a delta: the encoder counts
// what there is to do, and a device of a class does so much of it in a second.
package budget

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Work is what decoding a delta takes, by kind.
type Work struct {
	Bytes    int64 `json:"bytes"`    // that are read or made, or come from a bulk part
	Bits     int64 `json:"bits"`     // that models predict
	Literals int64 `json:"literals"` // bytes outside of matches in bulk parts, that mixed contexts predict
	Summed   int64 `json:"summed"`   // those that sums predict
	Packed   int64 `json:"packed"`   // bytes of bulk parts, as they travel
	Expanded int64 `json:"expanded"` // bytes that zstd gives
	Deflated int64 `json:"deflated"` // bytes that are compressed again; those at levels below 6 count half
}

// Instructions is about how many instructions a decoder on arm/v7 executes for the work.
// docs/BENCHMARKS.md says how the factors were found, and how far off they are.
func (w *Work) Instructions() int64 {
	return 25e6 + 40*w.Bytes + 620*w.Bits + 3000*w.Literals + 1200*w.Summed + 180*w.Packed + 65*w.Expanded + 450*w.Deflated
}

// Minus is the work that is left of w without o.
func (w Work) Minus(o Work) Work {
	return Work{Bytes: w.Bytes - o.Bytes, Bits: w.Bits - o.Bits, Literals: w.Literals - o.Literals, Summed: w.Summed - o.Summed,
		Packed: w.Packed - o.Packed, Expanded: w.Expanded - o.Expanded, Deflated: w.Deflated - o.Deflated}
}

// A Class is a kind of devices. It stands for slow ones that are in wide use.
type Class struct {
	Name      string // as it is given to app-gen
	Platform  string // the platforms of these devices begin with it
	Processor string // that it stands for
	Speed     int64  // of one core, in Instructions a second
}

// Classes has all classes. docs/BENCHMARKS.md says where the speeds are from.
var Classes = []Class{
	{Name: "armv7", Platform: "linux/arm", Processor: "a Cortex-A7 at 1 GHz", Speed: 790e6},
	{Name: "arm64", Platform: "linux/arm64", Processor: "a Cortex-A53 at 1.3 GHz", Speed: 1160e6},
	{Name: "amd64", Platform: "linux/amd64", Processor: "a core of an AMD EPYC", Speed: 8000e6},
}

// ClassOf returns the class of a platform such as linux/arm/v7.
func ClassOf(platform string) (Class, bool) {
	for _, c := range Classes {
		if platform == c.Platform || strings.HasPrefix(platform, c.Platform+"/") {
			return c, true
		}
	}
	return Class{}, false
}

// ClassNamed returns the class with a name.
func ClassNamed(name string) (Class, error) {
	for _, c := range Classes {
		if c.Name == name {
			return c, nil
		}
	}
	return Class{}, fmt.Errorf("%q is not a class of devices; the classes are %s", name, names())
}

// Time returns how long one core of a device of the class takes for so many instructions.
func (c Class) Time(instructions int64) time.Duration {
	return rounded(float64(instructions) / float64(c.Speed))
}

// rounded is a time of at most maxTime, in tenths of a second.
func rounded(seconds float64) time.Duration {
	return time.Duration(min(seconds, maxTime.Seconds()) * float64(time.Second)).Round(100 * time.Millisecond)
}

// Text tells what decoding takes on a platform, with the processor that its class stands
// for.
func Text(instructions int64, platform string) string {
	if c, known := ClassOf(platform); known {
		return fmt.Sprintf("about %v on %s", c.Time(instructions), c.Processor)
	}
	return fmt.Sprintf("about %.1f billion instructions", float64(instructions)/1e9)
}

// A Budget is how long decoding may take: a time on devices of a class, or a number of
// instructions.
type Budget struct {
	Class        string // its name; "" for that of the platform
	Time         time.Duration
	Instructions int64
}

const (
	maxTime         = 24 * time.Hour
	maxInstructions = 1e15
)

// Parse reads TIME[@CLASS], as 30s@armv7, or a number of instructions, as 20G.
func Parse(s string) (b Budget, err error) {
	amount, class, named := strings.Cut(s, "@")
	if n := len(amount) - 1; n > 0 && !named {
		if unit := map[byte]float64{'M': 1e6, 'G': 1e9}[amount[n]]; unit > 0 {
			count, err := strconv.ParseFloat(amount[:n], 64)
			if count *= unit; err != nil || !(count >= 1 && count <= maxInstructions) {
				return b, fmt.Errorf("%q is not a number of instructions, such as 500M or 20G", amount)
			}
			b.Instructions = int64(count)
			return b, nil
		}
	}
	if named {
		if _, err := ClassNamed(class); err != nil {
			return b, err
		}
	}
	b.Class = class
	if b.Time, err = time.ParseDuration(amount); err != nil || b.Time <= 0 || b.Time > maxTime {
		return b, fmt.Errorf("%q is neither a time of at most %v, such as 30s or 30s@armv7, nor a number of instructions, such as 20G", s, maxTime)
	}
	return b, nil
}

func names() string {
	var list []string
	for _, c := range Classes {
		list = append(list, c.Name)
	}
	return strings.Join(list, ", ")
}

// On returns how many instructions the budget allows on a platform; 0 if it is for
// other devices.
func (b Budget) On(platform string) (int64, error) {
	class, known := ClassOf(platform)
	switch {
	case b.Instructions > 0:
		return b.Instructions, nil
	case b.Class != "" && b.Class != class.Name:
		return 0, nil
	case !known:
		return 0, fmt.Errorf("the speed of %s devices is not known, only that of %s: give a number of instructions, such as 20G", platform, names())
	}
	return max(1, int64(b.Time.Seconds()*float64(class.Speed))), nil
}
