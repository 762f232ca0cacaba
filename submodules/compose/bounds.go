package compose

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/submodules"
)

// bounds are what a run of Compose may take.
type bounds struct {
	memory    uint64 // private writable memory, in bytes
	processor time.Duration
}

// readProcessor is the time of the processor to read Compose files. What reads
// them usually takes a second, and some on a small device.
const readProcessor = 30 * time.Second

// The memory that Compose may have, in bytes: half of the machine's within these.
// It reads usual files with some 100 MB, most of it reserved by its runtime.
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

// memoryFor is composeMemory for a machine with total bytes.
func memoryFor(total uint64) uint64 { return min(max(total/2, leastMemory), mostMemory) }

// set sets the bounds of a process that has just begun; its children inherit
// them.
func (b *bounds) set(pid int) {
	for _, p := range append(descendants(pid), pid) {
		seconds := uint64(max(b.processor/time.Second, 1))
		_ = unix.Prlimit(p, unix.RLIMIT_DATA, &unix.Rlimit{Cur: b.memory, Max: b.memory}, nil)
		// A process that catches the first signal is killed by the second.
		_ = unix.Prlimit(p, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + 1}, nil)
	}
}

// errOver is a run of Compose that took more than its bounds.
var errOver = errors.New("do aliases or extensions of the Compose files name each other many times over?")

// explain says which bound ended a run, if one did.
func (b *bounds) explain(err error, over *overrun) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		used := exit.UserTime() + exit.SystemTime()
		ws, _ := exit.Sys().(syscall.WaitStatus)
		// The child of the docker command is ended, and the command says so.
		if over.processor || ws.Signaled() && ws.Signal() == syscall.SIGXCPU || used >= b.processor {
			return submodules.Mark(fmt.Errorf("docker compose was ended after %v of the processor's time: %w", b.processor, errOver), submodules.ErrContent)
		}
		if over.memory {
			return submodules.Mark(fmt.Errorf("docker compose was ended when it needed more than %d MiB of memory: %w", b.memory>>20, errOver), submodules.ErrContent)
		}
	}
	return err
}

// overrun passes on what a program says, and notices the words with which the Go
// runtime ends a program that gets no memory or no time. They come before the
// stacks of all goroutines.
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
