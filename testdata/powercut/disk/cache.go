package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
)

// sector is the size in bytes that a disk writes completely or not at all.
const sector = 512

// Modes of a cut: what survives of the cache.
var modes = []string{"none", "all", "prefix", "random"}

// cache is the disk. Its memory grows with the data written.
type cache struct {
	mu    sync.Mutex
	image *os.File
	size  int64

	kept map[int64][]byte // sectors that were flushed, or survived a cut
	dirt map[int64][]byte // sectors as written last, not flushed
	log  []record         // the writes since the last flush, in order

	off             bool
	writes, flushes int64
	kind            string // what the armed cut waits for
	left            int64  // how many of it; 0: none is armed
	mode            string
	seed            int64
	survived, lost  int // by the last cut, in sectors
}

type record struct {
	at   int64
	data []byte
}

func newCache(image string) (*cache, error) {
	f, err := os.Open(image)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size()%sector != 0 {
		return nil, fmt.Errorf("%s is not a whole number of sectors", image)
	}
	return &cache{image: f, size: st.Size(), kept: map[int64][]byte{}, dirt: map[int64][]byte{}}, nil
}

// read fills b from offset off. Bytes beyond the disk's end are left as they are.
func (c *cache) read(b []byte, off int64) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off >= c.size {
		return 0, nil
	}
	b = b[:min(int64(len(b)), c.size-off)]
	for n := 0; n < len(b); {
		at, in := (off+int64(n))/sector, (off+int64(n))%sector
		part := b[n:min(len(b), n+int(sector-in))]
		if s, ok := c.sector(at); ok {
			copy(part, s[in:])
		} else if _, err := c.image.ReadAt(part, off+int64(n)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(b), nil
}

func (c *cache) sector(at int64) ([]byte, bool) {
	s, ok := c.dirt[at]
	if !ok {
		s, ok = c.kept[at]
	}
	return s, ok
}

// write puts b into the cache.
func (c *cache) write(b []byte, off int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off || off+int64(len(b)) > c.size {
		return syscall.EIO
	}
	c.writes++
	for n := 0; n < len(b); {
		at, in := (off+int64(n))/sector, (off+int64(n))%sector
		part := b[n:min(len(b), n+int(sector-in))]
		s := make([]byte, sector)
		if len(part) < sector {
			if old, ok := c.sector(at); ok {
				copy(s, old)
			} else if _, err := c.image.ReadAt(s, at*sector); err != nil {
				return err
			}
		}
		copy(s[in:], part)
		c.dirt[at] = s
		c.log = append(c.log, record{at, s})
		n += len(part)
	}
	c.passed("write")
	return nil
}

// flush makes the cache durable. A cut armed for this flush comes before it.
func (c *cache) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.off {
		c.flushes++
		c.passed("flush")
	}
	if c.off {
		return syscall.EIO
	}
	for at, s := range c.dirt {
		c.kept[at] = s
	}
	clear(c.dirt)
	c.log = nil
	return nil
}

func (c *cache) passed(kind string) {
	if c.left > 0 && c.kind == kind {
		if c.left--; c.left == 0 {
			c.cut()
		}
	}
}

func (c *cache) cutNow(mode string, seed int64) error {
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("unknown mode %q", mode)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.off {
		c.mode, c.seed = mode, seed
		c.cut()
	}
	return nil
}

func (c *cache) arm(kind string, n int64, mode string, seed int64) error {
	if !slices.Contains(modes, mode) || kind != "write" && kind != "flush" || n < 1 {
		return fmt.Errorf("cannot arm %s %d %s", kind, n, mode)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kind, c.left, c.mode, c.seed = kind, n, mode, seed
	return nil
}

// cut turns the disk off. A sector that was written more than once since the
// last flush may survive in an older state.
func (c *cache) cut() {
	rng := rand.New(rand.NewPCG(uint64(c.seed), 0))
	prefix := rng.IntN(len(c.log) + 1)
	c.survived = 0
	for i, r := range c.log {
		if c.mode == "all" || c.mode == "prefix" && i < prefix || c.mode == "random" && rng.IntN(2) == 0 {
			c.kept[r.at] = r.data
			c.survived++
		}
	}
	c.lost = len(c.log) - c.survived
	clear(c.dirt)
	c.log, c.off, c.left = nil, true, 0
}

func (c *cache) on() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = false
}

func (c *cache) stat() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("off=%t writes=%d flushes=%d dirty=%d survived=%d lost=%d",
		c.off, c.writes, c.flushes, len(c.dirt), c.survived, c.lost)
}
