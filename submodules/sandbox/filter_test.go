package sandbox

import (
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The numbers are those that a library has from the kernel's sources. It calls what
// arm64 has as newfstatat fstatat, and gives that architecture calls of 32-bit ones.
func TestNumbers(t *testing.T) {
	words := strings.Fields(runtimeCalls + fileCalls + waitCalls + runCalls + " socket socketpair")
	for text, info := range map[string]*arch.Info{numbersARM: arch.ARM, numbersARM64: arch.AARCH64, numbersAMD64: arch.X86_64} {
		calls := known(text)
		require.NotEmpty(t, calls)
		for name, n := range calls {
			if info == arch.AARCH64 && name == "newfstatat" {
				name = "fstatat"
			}
			require.Contains(t, info.SyscallNames, name, info.Name)
			require.EqualValues(t, info.SyscallNames[name], n, "%s of %s", name, info.Name)
		}
		for _, name := range words {
			if info == arch.AARCH64 && (strings.HasSuffix(name, "_time64") || name == "clock_gettime64" || name == "timer_settime64") {
				continue
			}
			if _, has := info.SyscallNames[name]; has {
				require.Contains(t, calls, name, info.Name)
			}
		}
		for _, name := range []string{"clone", "clone3", "kill", "tgkill", "prlimit64", "socket", "socketpair"} {
			require.Contains(t, calls, name, "conditions need it")
		}
	}
}

// What the filter says of calls, on every architecture.
func TestFilter(t *testing.T) {
	for _, text := range []string{numbersARM, numbersARM64, numbersAMD64} {
		calls := known(text)
		alone, network, running := callFilter(Rights{}, calls, 77), callFilter(Rights{Network: true}, calls, 77), callFilter(Rights{Run: true}, calls, 77)
		require.Less(t, len(alone.program), 4096, "BPF_MAXINSNS")
		says := func(f *filter, name string, arguments ...uint64) uint32 {
			return answer(t, f.program, architecture(), calls[name], arguments...)
		}
		numbers := map[uint32]bool{}
		for _, name := range strings.Fields(runtimeCalls + fileCalls + waitCalls) {
			if n, ok := calls[name]; ok {
				numbers[n] = true
				require.EqualValues(t, allow, says(alone, name), name)
			}
		}
		for _, name := range strings.Fields(runCalls + " socket socketpair") {
			numbers[calls[name]] = true
		}
		for n := range uint32(2000) { // every other call, also those that do not exist yet
			if !numbers[n] {
				require.Equal(t, deny, answer(t, alone.program, architecture(), n), n)
				require.Equal(t, deny, answer(t, running.program, architecture(), n), n)
			}
		}
		require.Equal(t, deny, answer(t, alone.program, unix.AUDIT_ARCH_I386, calls["read"]), "another architecture")
		require.Equal(t, deny, answer(t, alone.program, architecture(), calls["read"]|1<<30), "x32")

		require.Equal(t, deny, says(alone, "execve"))
		require.EqualValues(t, allow, says(running, "execve"))
		require.Equal(t, deny, says(alone, "clone", uint64(unix.SIGCHLD)))
		require.EqualValues(t, allow, says(alone, "clone", unix.CLONE_THREAD|unix.CLONE_VM))
		require.EqualValues(t, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS), says(alone, "clone3"))
		require.EqualValues(t, allow, says(running, "clone3"))
		require.EqualValues(t, allow, says(alone, "kill", 1, 0))
		require.Equal(t, deny, says(alone, "kill", 1, 9))
		require.Equal(t, deny, says(alone, "kill", 1, 1<<32), "the upper half counts")
		require.EqualValues(t, allow, says(alone, "tgkill", 77, 78, 23))
		require.Equal(t, deny, says(alone, "tgkill", 76, 76, 23))
		require.EqualValues(t, allow, says(alone, "prlimit64", 0, 7, 0))
		require.Equal(t, deny, says(alone, "prlimit64", 0, 7, 1))
		for family, inNetwork := range map[uint64]bool{unix.AF_INET: true, unix.AF_INET6: true, unix.AF_NETLINK: false, unix.AF_PACKET: false} {
			require.Equal(t, deny, says(alone, "socket", family))
			require.Equal(t, inNetwork, says(network, "socket", family) == allow)
			require.Equal(t, deny, says(network, "socketpair", family))
		}
		require.EqualValues(t, allow, says(alone, "socket", unix.AF_UNIX))
		require.EqualValues(t, allow, says(alone, "socketpair", unix.AF_UNIX))
	}
}

// answer runs a filter as the kernel does.
func answer(t *testing.T, program []unix.SockFilter, architecture, call uint32, arguments ...uint64) uint32 {
	t.Helper()
	var a uint32
	for i := 0; i < len(program); i++ {
		in := program[i]
		jump := func(yes bool) {
			if yes {
				i += int(in.Jt)
			} else {
				i += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case in.K == offsetCall:
				a = call
			case in.K == offsetArchitecture:
				a = architecture
			default:
				at := in.K - offsetArguments
				require.Less(t, at, uint32(48))
				a = 0
				if int(at/8) < len(arguments) {
					a = uint32(arguments[at/8] >> (at % 8 * 8))
				}
			}
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(a > in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("code %#x", in.Code)
		}
	}
	t.Fatal("the filter does not end")
	return 0
}
