// Package bounds limits the memory and the processor time of a program and of those that it
// starts, and says which limit ended one. It must not know what the program is for, but that
// it is Docker Compose in a message.
package bounds

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

// Bounds limit one run of Compose.
type Bounds struct {
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

// Memory is the memory that Compose may have on this machine, in bytes.
func Memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return mostMemory
	}
	return memoryFor(uint64(info.Totalram) * uint64(info.Unit)) //nolint:unconvert // its type differs by machine
}

// memoryFor is Memory for a machine with total bytes.
func memoryFor(total uint64) uint64 { return min(max(total/2, leastMemory), mostMemory) }

// Set sets the bounds of a process that has just started; its children inherit them.
func (b *Bounds) Set(pid int) {
	for _, p := range append(Descendants(pid), pid) {
		seconds := uint64(max(b.Processor/time.Second, 1))
		_ = unix.Prlimit(p, unix.RLIMIT_DATA, &unix.Rlimit{Cur: b.Memory, Max: b.Memory}, nil)
		// The second signal kills a process that catches the first.
		_ = unix.Prlimit(p, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + 1}, nil)
	}
}

// ErrOver says that a run of Compose exceeded its bounds.
var ErrOver = errors.New("do aliases or extensions of the Compose files name each other many times over?")

// Explain says which bound ended a run, if one did.
func (b *Bounds) Explain(err error, over *Overrun) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		used := exit.UserTime() + exit.SystemTime()
		ws, _ := exit.Sys().(syscall.WaitStatus)
		// The docker command's child was ended, and the command reports that.
		if over.processor || ws.Signaled() && ws.Signal() == syscall.SIGXCPU || used >= b.Processor {
			return submodules.Mark(fmt.Errorf("docker compose was ended after %v of the processor's time: %w", b.Processor, ErrOver), submodules.ErrContent)
		}
		if over.memory {
			return submodules.Mark(fmt.Errorf("docker compose was ended when it needed more than %d MiB of memory: %w", b.Memory>>20, ErrOver), submodules.ErrContent)
		}
	}
	return err
}

// Overrun passes on a program's output, and looks for the message with which the Go
// runtime ends a program that gets no memory or no processor time. The message comes
// before the stacks of all goroutines.
type Overrun struct {
	io.Writer
	memory, processor bool
	last              []byte
}

var (
	noMemory = [][]byte{[]byte("runtime: cannot allocate memory"), []byte("runtime: out of memory"), []byte("failed to create new OS thread"), []byte("fatal error: out of memory")}
	noTime   = []byte("SIGXCPU")
)

func (o *Overrun) Write(p []byte) (int, error) {
	text := append(o.last, p...)
	for _, words := range noMemory {
		o.memory = o.memory || bytes.Contains(text, words)
	}
	o.processor = o.processor || bytes.Contains(text, noTime)
	o.last = bytes.Clone(text[max(0, len(text)-40):])
	return o.Writer.Write(p)
}

// Descendants returns the processes below pid: the docker command runs Compose as
// its child, and that of Docker 20.10 does not pass TERM on.
func Descendants(pid int) []int {
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
				all = append(all, Descendants(child)...)
			}
		}
	}
	return all
}
