package sandbox

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter is a program of the kernel's classic BPF (seccomp(2)). It is short enough
// to be written here: a library has the names of all calls of all architectures in
// maps, which every start of every program would fill.

// Where the kernel tells the program about a call: struct seccomp_data.
const (
	offsetCall         = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

const (
	allow = unix.SECCOMP_RET_ALLOW
	deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// condition allows a call if one of its arguments is a value or, with bits, has all
// bits of it.
type condition struct {
	call, argument uint32
	value          uint32
	bits           bool
}

// filter is a program that is being written.
type filter struct {
	calls   map[string]uint32 // the numbers of the calls that the architecture has
	program []unix.SockFilter
}

// known reads the numbers of calls.
func known(text string) map[string]uint32 {
	calls := map[string]uint32{}
	for _, word := range strings.Fields(text) {
		name, number, _ := strings.Cut(word, ":")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil {
			calls[name] = uint32(n)
		}
	}
	return calls
}

// architecture is how the kernel names this one; 0 if no filter is known for it.
func architecture() uint32 {
	switch runtime.GOARCH {
	case "arm":
		return unix.AUDIT_ARCH_ARM
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64
	case "amd64":
		return unix.AUDIT_ARCH_X86_64
	}
	return 0
}

func (f *filter) add(code uint16, value uint32, yes, no uint8) {
	f.program = append(f.program, unix.SockFilter{Code: code, K: value, Jt: yes, Jf: no})
}

func (f *filter) load(offset uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }

func (f *filter) end(what uint32) { f.add(unix.BPF_RET|unix.BPF_K, what, 0, 0) }

// jump compares what was loaded, and leaves out so many instructions.
func (f *filter) jump(how uint16, value uint32, yes, no uint8) {
	f.add(unix.BPF_JMP|how|unix.BPF_K, value, yes, no)
}

// begin refuses the calls of other architectures, as a 64-bit kernel has them for
// 32-bit programs, and loads the number of the call.
func (f *filter) begin() {
	f.load(offsetArchitecture)
	f.jump(unix.BPF_JEQ, architecture(), 1, 0)
	f.end(deny)
	f.load(offsetCall)
}

// each ends with what for each call of the list.
func (f *filter) each(calls []uint32, what uint32) {
	calls = slices.Compact(slices.Sorted(slices.Values(calls)))
	for len(calls) > 0 {
		n := 1 // calls that follow one another are one comparison
		for n < len(calls) && calls[n] == calls[0]+uint32(n) {
			n++
		}
		if n == 1 {
			f.jump(unix.BPF_JEQ, calls[0], 0, 1)
		} else {
			f.jump(unix.BPF_JGE, calls[0], 0, 2)
			f.jump(unix.BPF_JGT, calls[n-1], 1, 0)
		}
		f.end(what)
		calls = calls[n:]
	}
}

// when allows a call under a condition. Arguments have 64 bits, the lower half first on
// every architecture here.
func (f *filter) when(c condition) {
	low := offsetArguments + 8*c.argument
	if c.bits {
		f.jump(unix.BPF_JEQ, c.call, 0, 4)
		f.load(low)
		f.jump(unix.BPF_JSET, c.value, 0, 1)
	} else {
		f.jump(unix.BPF_JEQ, c.call, 0, 6)
		f.load(low + 4)
		f.jump(unix.BPF_JEQ, 0, 0, 3)
		f.load(low)
		f.jump(unix.BPF_JEQ, c.value, 0, 1)
	}
	f.end(allow)
	f.load(offsetCall)
}

// whenEqual allows a call of that name if an argument is a value.
func (f *filter) whenEqual(name string, argument, value uint32) {
	f.when(condition{call: f.calls[name], argument: argument, value: value})
}

// supported reports whether the kernel has filters. This asks for another mode with
// flags, which is refused only where the mode is known.
func supported() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_STRICT, 1, 0)
	return errno == unix.EINVAL
}

// set sets the filter for all threads. The thread that calls has no_new_privs.
func (f *filter) set() error {
	program := unix.SockFprog{Len: uint16(len(f.program)), Filter: &f.program[0]}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	switch {
	case errno != 0:
		return os.NewSyscallError("seccomp", errno)
	case thread != 0: // it cannot take the filter over
		return os.NewSyscallError("seccomp", unix.EBUSY)
	}
	return nil
}
