package vcdiff

import (
	"fmt"
	"runtime/debug"
)

// A budget bounds the buffers whose sizes the delta chooses.
type budget struct{ limit, used int64 }

// maxBuffer keeps sizes within an int of 32 bits.
const maxBuffer = 1 << 30

// grow makes *b at least n bytes long; its content is lost when it is not.
// It asks for memory only after the budget allows it.
func (m *budget) grow(b *[]byte, n int64) error {
	have := int64(len(*b))
	if n <= have {
		return nil
	}
	left := min(m.limit-m.used+have, maxBuffer)
	if n > left {
		return fmt.Errorf("%w: %d KiB more memory, %d KiB left", ErrTooLarge, n>>10, left>>10)
	}
	// Windows may grow, and what they leave behind is garbage that would
	// count until the next collection: grow by at least half, and have large
	// garbage collected at once.
	size := min(max(n, have+have/2), left)
	*b = nil
	if have >= 1<<20 {
		debug.FreeOSMemory()
	}
	*b = make([]byte, size)
	m.used += size - have
	return nil
}
