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

// share means that one program may use a quarter of the free memory. The engine, the
// client and the application need the rest.
const share = 4

// Fit sets Go's memory limit to most bytes, or to a quarter of the free memory if that
// is less, but to at least least bytes; in that case the collector also runs twice as
// often. GOMEMLIMIT and GOGC in the environment take precedence. The limit is soft: a
// program that needs more memory still gets it, but then the collector runs all the
// time, which takes as long again as the work itself. So least should be the memory the
// program uses at once, plus some room.
func Fit(most, least int64) {
	available := int64(math.MaxInt64) // unless the kernel says
	if f, err := os.Open("/proc/meminfo"); err == nil {
		available = free(f)
		_ = f.Close() // it was only read
	}
	limit, percent := limits(available, most, least)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// Spare makes the collector run twice as often, as Fit does if little memory is free. It
// is for long-running commands, and for those that inspect all applications, when nobody
// waits for them.
func Spare() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// limits returns the collector's settings for the available memory, in bytes.
func limits(available, most, least int64) (limit int64, percent int) {
	if available/share >= most {
		return most, 100
	}
	return min(most, max(available/share, least)), 50
}

// free reads how many bytes are available without swapping (proc_meminfo(5)). If
// that is missing, it returns the largest number.
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
