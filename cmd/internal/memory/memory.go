// Package memory fits a program's garbage collector to the device it runs on.
// It must not know what the program does.
package memory

import (
	"bufio"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// share is the part of the free memory that one program may fill with
	// garbage: the engine, the client and the application want theirs.
	share = 4
	// least is the limit below which the collector would run all the time: what
	// our programs have in use is more than half of it.
	least = 8 << 20
)

// Fit sets Go's memory limit to most bytes, and below that to a quarter of the
// memory that is free now, where most would be more; then the collector also
// runs twice as often. GOMEMLIMIT and GOGC in the environment come first. The
// limit is soft: a program that needs more than it has runs slower, and goes on.
func Fit(most int64) {
	available := int64(math.MaxInt64) // where the kernel does not tell
	if f, err := os.Open("/proc/meminfo"); err == nil {
		available = free(f)
		_ = f.Close() // it was only read
	}
	limit, percent := limits(available, most)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// limits are the collector's settings where so much is available.
func limits(available, most int64) (limit int64, percent int) {
	if available/share >= most {
		return most, 100
	}
	return min(most, max(available/share, least)), 50
}

// free reads the bytes that can be had without swapping (proc_meminfo(5));
// the largest number where that is not said.
func free(meminfo io.Reader) int64 {
	lines := bufio.NewScanner(io.LimitReader(meminfo, 64<<10))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "MemAvailable:" || fields[2] != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil && n >= 0 && n <= math.MaxInt64>>10 {
			return n << 10
		}
	}
	return math.MaxInt64
}
