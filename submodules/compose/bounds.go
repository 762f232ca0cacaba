package compose

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/submodules"
)

// This file limits the memory and the processor time of Compose and of what it starts,
// and says which limit ended it.

// bounds limit one run of Compose.
type bounds struct {
	Memory    uint64 // private writable memory, in bytes
	Processor time.Duration
}

// The memory that Compose may have, in bytes, is half of the machine's within these
// limits. Compose needs about 100 MB for ordinary files; most of that is reserved by
// its runtime and not used.
const (
	leastMemory = 256 << 20
	mostMemory  = 1 << 30
)

// composeMemory is the memory that Compose may have on this machine, in bytes.
func composeMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return mostMemory
	}
	return memoryFor(uint64(info.Totalram) * uint64(info.Unit)) //nolint:unconvert // its type differs by machine
}

// memoryFor is Memory for a machine with total bytes.
func memoryFor(total uint64) uint64 { return min(max(total/2, leastMemory), mostMemory) }

// Set sets the bounds of a process that has just started; its children inherit them.
func (b *bounds) Set(pid int) {
	for _, p := range append(descendants(pid), pid) {
		seconds := uint64(max(b.Processor/time.Second, 1))
		_ = unix.Prlimit(p, unix.RLIMIT_DATA, &unix.Rlimit{Cur: b.Memory, Max: b.Memory}, nil)
		// The second signal kills a process that catches the first.
		_ = unix.Prlimit(p, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + 1}, nil)
	}
}

// errOverrun says that a run of Compose exceeded its bounds.
var errOverrun = errors.New("do aliases or extensions of the Compose files name each other many times over?")

// Explain says which bound ended a run, if one did.
func (b *bounds) Explain(err error, over *overrun) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		used := exit.UserTime() + exit.SystemTime()
		ws, _ := exit.Sys().(syscall.WaitStatus)
		// The docker command ends with 255 or 128 and the signal when one ended its child.
		signaled := ws.Signaled() || ws.ExitStatus() >= 128
		// The kernel counts ticks for the limit. They may be some percent more than the time.
		spent := used >= b.Processor || signaled && used >= b.Processor*9/10
		if over.processor || spent || ws.Signaled() && ws.Signal() == syscall.SIGXCPU {
			return submodules.Mark(fmt.Errorf("docker compose was ended after %v of the processor's time: %w", b.Processor, errOverrun), submodules.ErrContent)
		}
		if over.memory {
			return submodules.Mark(fmt.Errorf("docker compose was ended when it needed more than %d MiB of memory: %w", b.Memory>>20, errOverrun), submodules.ErrContent)
		}
	}
	return err
}

// overrun passes on a program's output, and looks for the message with which the Go
// runtime ends a program that gets no memory or no processor time. The message comes
// before the stacks of all goroutines.
type overrun struct {
	io.Writer
	memory, processor bool
	last              []byte
}

var (
	noMemory = [][]byte{[]byte("runtime: cannot allocate memory"), []byte("runtime: out of memory"), []byte("failed to create new OS thread"), []byte("fatal error: out of memory")}
	noTime   = []byte("SIGXCPU")
)

func (o *overrun) Write(p []byte) (int, error) {
	text := append(o.last, p...)
	for _, words := range noMemory {
		o.memory = o.memory || bytes.Contains(text, words)
	}
	o.processor = o.processor || bytes.Contains(text, noTime)
	o.last = bytes.Clone(text[max(0, len(text)-40):])
	return o.Writer.Write(p)
}

// descendants returns the processes below pid: the docker command runs Compose as
// its child, and that of Docker 20.10 does not pass TERM on.
func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
				all = append(all, descendants(child)...)
			}
		}
	}
	return all
}
