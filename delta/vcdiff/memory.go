package vcdiff

import (
	"fmt"
	"runtime/debug"
)

// A budget bounds the buffers whose sizes the delta chooses.
type budget struct{ limit, used int64 }

// maxBuffer keeps sizes within an int of 32 bits.
const maxBuffer = 1 << 30

// grow makes *b at least n bytes long. If it allocates, the content is lost. It
// allocates only what the budget allows.
func (m *budget) grow(b *[]byte, n int64) error {
	have := int64(len(*b))
	if n <= have {
		return nil
	}
	left := min(m.limit-m.used+have, maxBuffer)
	if n > left {
		return fmt.Errorf("%w: %d KiB more memory, %d KiB left", ErrTooLarge, n>>10, left>>10)
	}
	// Windows may grow, and the old buffers are garbage until the next collection.
	// So grow by at least half, and collect large garbage at once.
	size := min(max(n, have+have/2), left)
	*b = nil
	if have >= 1<<20 {
		debug.FreeOSMemory()
	}
	*b = make([]byte, size)
	m.used += size - have
	return nil
}
