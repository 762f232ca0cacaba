// Package sandbox removes rights that the calling process does not need while it
// reads unverified bytes.
//
// It uses the kernel's features: Landlock (file system and TCP; Linux 5.13 or later),
// a seccomp filter (system calls; Linux 3.17 or later), no_new_privs and resource
// limits. Missing ones are left out. The restrictions cannot be undone: they hold for
// every thread of the process until the process ends.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// Rights are the rights a process keeps. The zero value keeps open files, memory,
// threads and Unix sockets.
type Rights struct {
	// Read are files and directories, with everything below them, that may be read.
	// Paths that do not exist are left out.
	Read []string
	// Write are directories in which files may be read, made, changed and removed.
	Write []string
	// RemoveIn are directories in which empty directories may be removed.
	RemoveIn []string
	// Network allows TCP connections, UDP sockets for name resolution, and reading the
	// system's network configuration. Without it, only Unix sockets are allowed.
	Network bool
	// Run allows running other programs: all files may then be read and executed.
	Run bool
}

// State says which restrictions are in force for a process.
type State struct {
	// Landlock is the version of the kernel's Landlock interface (ABI) in force; 0 is
	// none.
	Landlock int `json:"landlock_abi"`
	// Seccomp is true if the list of system calls is in force.
	Seccomp bool `json:"seccomp"`
	// NoNewPrivs is true if no program that the process runs can gain rights.
	NoNewPrivs bool `json:"no_new_privs"`
}

// Kernel returns the restrictions that the running kernel offers.
func Kernel() State {
	s := State{Landlock: landlockVersion(), Seccomp: seccomp.Supported()}
	v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	s.NoNewPrivs = err == nil && v >= 0
	return s
}

// Enter restricts the calling process to the rights. A feature that the kernel lacks
// is not an error; the state shows it. After an error, only some of the restrictions
// may be in force.
func Enter(r Rights) (State, error) {
	var s State
	err := noNewPrivs()
	s.NoNewPrivs = err == nil
	if err != nil && !errors.Is(err, unix.EINVAL) { // Linux before 3.5
		return s, fmt.Errorf("no_new_privs: %w", err)
	}
	if s.Landlock, err = restrictFiles(r); err != nil {
		return s, fmt.Errorf("landlock: %w", err)
	}
	if s.Seccomp, err = restrictCalls(r); err != nil {
		return s, fmt.Errorf("seccomp: %w", err)
	}
	return s, nil
}

// noNewPrivs sets the flag for this thread; seccomp and Landlock set it for the
// other threads.
func noNewPrivs() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// Limits bound the resources of a process and of the programs that it runs. 0 leaves
// a limit as it is.
type Limits struct {
	Memory    uint64 // private writable memory, in bytes
	File      uint64 // the size of a file that it writes, in bytes
	Processor uint64 // time of all processors together, in seconds
}

// Set sets the limits of the calling process, and disables core files. It keeps lower
// existing limits.
func (l Limits) Set() error {
	err := lower(unix.RLIMIT_CORE, 0)
	for resource, max := range map[int]uint64{unix.RLIMIT_DATA: l.Memory, unix.RLIMIT_FSIZE: l.File, unix.RLIMIT_CPU: l.Processor} {
		if max > 0 {
			err = errors.Join(err, lower(resource, max))
		}
	}
	return err
}

func lower(resource int, max uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	max = min(max, uint64(now.Max))
	return os.NewSyscallError("setrlimit", unix.Setrlimit(resource, &unix.Rlimit{Cur: max, Max: max}))
}

// ProcessorTime is the time that the processors can give a process until the
// context's deadline, in seconds; 0 if there is no deadline.
func ProcessorTime(ctx context.Context) uint64 {
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := math.Ceil(max(time.Until(end).Seconds(), 1))
	return uint64(left) * uint64(runtime.NumCPU())
}
