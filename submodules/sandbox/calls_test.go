package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/stretchr/testify/require"
)

// Some calls have another number on each architecture, and some another name in the
// library. These are from the kernel's tables (arch/arm/tools/syscall.tbl,
// include/uapi/asm-generic/unistd.h, arch/x86/entry/syscalls/syscall_64.tbl).
func TestFilesAreFoundByName(t *testing.T) {
	allowed := strings.Fields(fileCalls)
	for info, numbers := range map[*arch.Info]map[string]int{
		arch.ARM:     {"fstatat64": 327, "openat": 322, "readlinkat": 332, "getdents64": 217},
		arch.AARCH64: {"newfstatat": 79, "openat": 56, "readlinkat": 78, "getdents64": 61},
		arch.X86_64:  {"newfstatat": 262, "openat": 257, "readlinkat": 267, "getdents64": 217},
	} {
		for call, number := range numbers {
			require.True(t, slices.ContainsFunc(allowed, func(name string) bool {
				n, ok := info.SyscallNames[name]
				return ok && n == number
			}), "%s of %s", call, info.Name)
		}
	}
}
