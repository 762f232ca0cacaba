package generator

import (
	"fmt"
	"math"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/delta/encoder"
)

// decodeLimit is how many instructions decoding may take on the devices of a platform; 0
// for any number.
type decodeLimit struct {
	Instructions int64
	Class        budget.Class // of the devices; the zero value if it is not known
}

// decodeLimitOn returns the limit that budgets set on a platform.
func decodeLimitOn(list []budget.Budget, platform string) (l decodeLimit, err error) {
	l.Class, _ = budget.ClassOf(platform)
	for _, b := range list {
		n, err := b.On(platform)
		if err != nil {
			return l, err
		}
		if n > 0 && l.Instructions > 0 {
			return l, fmt.Errorf("two are for %s", platform)
		}
		l.Instructions += n
	}
	return l, nil
}

// byteCost is how many instructions a byte of a delta is worth to devices of a platform; 0
// if only bytes count.
func (o *Images) byteCost(platform string) int64 {
	if o.Link == 0 || o.Coding == Fast || o.Best {
		return 0
	}
	class, known := o.Device, o.Device.Speed > 0
	if !known {
		class, known = budget.ClassOf(platform)
	}
	if !known {
		class = budget.Classes[0]
	}
	return o.Link.ByteCost(class)
}

// tooMuchError reports that also the deltas that take the least are over the limit.
type tooMuchError struct {
	decodeLimit
	Least int64 // instructions
}

func (e *tooMuchError) Error() string {
	if e.Class.Speed == 0 {
		return fmt.Sprintf("decoding takes at least %s instructions, and %s are allowed", e.Enough(), billions(e.Instructions))
	}
	return fmt.Sprintf("decoding takes at least %s on %s, and %v are allowed", e.Enough(), e.Class.Processor, e.Class.Time(e.Instructions))
}

// Enough is a budget that would do.
func (e *tooMuchError) Enough() string {
	if e.Class.Speed == 0 {
		return billions(e.Least)
	}
	return fmt.Sprintf("%.1fs", tenth(float64(e.Least)/float64(e.Class.Speed)))
}

func billions(n int64) string { return fmt.Sprintf("%.1fG", tenth(float64(n)/1e9)) }

// tenth rounds up to a tenth.
func tenth(x float64) float64 { return math.Ceil(x*10) / 10 }

// thriftSearch finds the least thrift (see encoder.Options) with which deltas keep
// within a limit: no thrift, then the most, then halfway between.
type thriftSearch struct {
	limit     decodeLimit
	thrift    int // the one to be tried
	low, high int // low is known to be too little, and high to be enough
}

func (l decodeLimit) search() *thriftSearch {
	return &thriftSearch{limit: l, low: -1, high: encoder.MaxThrift + 1}
}

// judge takes how many instructions decoding takes with s.thrift, and chooses the next
// one. done says that s.thrift is the one that was searched for.
func (s *thriftSearch) judge(instructions int64) (done bool, err error) {
	switch {
	case s.limit.Instructions == 0 || instructions <= s.limit.Instructions:
		s.high = s.thrift
	case s.thrift == encoder.MaxThrift:
		return false, &tooMuchError{s.limit, instructions}
	default:
		s.low = s.thrift
	}
	switch {
	case s.high > encoder.MaxThrift:
		s.thrift = encoder.MaxThrift
	case s.high-s.low > 1:
		s.thrift = (s.low + s.high) / 2
	case s.thrift == s.high:
		return true, nil
	default:
		s.thrift = s.high
	}
	return false, nil
}

// decodingOf is how many instructions a device executes that decodes all deltas: those of
// sizes, and of each component in variants the variant that takes the most.
func decodingOf(sizes *artifact.Sizes, components []artifact.Component) int64 {
	n := sizes.Decode
	seen := map[digest.Digest]bool{}
	for _, c := range components {
		if seen[c.Digest] {
			continue // further names of the same
		}
		seen[c.Digest] = true
		most := int64(0)
		for _, v := range c.Variants {
			most = max(most, v.Decode)
		}
		n += most
	}
	return n
}
