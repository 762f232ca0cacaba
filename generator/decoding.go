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

// tooMuchError says that also the deltas that take the least are over the limit.
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

// Least calls pack with each thrift (see encoder.Options) that it tries, in the last call
// with the least that keeps within the limit. pack returns how many instructions
// decoding takes.
func (l decodeLimit) Least(pack func(thrift int) (int64, error)) error {
	n, err := pack(0)
	if err != nil || l.Instructions == 0 || n <= l.Instructions {
		return err
	}
	low, high, last := 0, encoder.MaxThrift, encoder.MaxThrift // low is too little
	if n, err = pack(high); err != nil {
		return err
	}
	if n > l.Instructions {
		return &tooMuchError{l, n}
	}
	for high-low > 1 {
		last = (low + high) / 2
		if n, err = pack(last); err != nil {
			return err
		}
		if n > l.Instructions {
			low = last
		} else {
			high = last
		}
	}
	if last != high {
		_, err = pack(high)
	}
	return err
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
