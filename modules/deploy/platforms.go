package deploy

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
)

// This file tells which platforms a machine runs.

// Platforms returns the platforms that this machine runs, the best first. It asks
// the kernel for the processor; the platform that this program was built for
// does not matter.
func Platforms() []image.Platform {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // optional: without it the machine's name decides
	all := platformsOf(unix.ByteSliceToString(u.Machine[:]), string(cpuinfo))
	if all != nil && all[0].Arch == "arm64" && !runs32() {
		all = all[:1]
	}
	return all
}

// runs32 reports whether a 64-bit ARM machine runs 32-bit programs. Newer
// processors do not; their kernel refuses the 32-bit personality
// (arch/arm64/kernel/sys.c).
func runs32() bool {
	const linux32 = 8      // PER_LINUX32
	runtime.LockOSThread() // the personality belongs to a thread
	defer runtime.UnlockOSThread()
	old, _, errno := unix.Syscall(unix.SYS_PERSONALITY, linux32, 0, 0)
	if errno != 0 {
		return false
	}
	_, _, _ = unix.Syscall(unix.SYS_PERSONALITY, old, 0, 0) // restore it
	return true
}

// platformsOf returns the platforms, the best first, for uname's machine and the text of
// /proc/cpuinfo, which has the processor's flags. 32-bit kernels are called
// armv7l and armv8l; a 64-bit kernel also says armv8l to a 32-bit process.
func platformsOf(machine, cpuinfo string) []image.Platform {
	arm := func(variant string) image.Platform { return image.Platform{OS: "linux", Arch: "arm", Variant: variant} }
	switch {
	case machine == "aarch64" || machine == "arm64":
		return []image.Platform{{OS: "linux", Arch: "arm64"}, arm("v7")}
	case strings.HasPrefix(machine, "armv8"), strings.HasPrefix(machine, "armv7"):
		return []image.Platform{arm("v7")}
	case strings.HasPrefix(machine, "armv6"):
		// Use the kernel's name of the machine: a Raspberry Pi 1 reports "CPU
		// architecture: 7" on an ARMv6 core.
		return []image.Platform{arm("v6")}
	case strings.HasPrefix(machine, "armv5"), strings.HasPrefix(machine, "arm"):
		return []image.Platform{arm("v5")}
	case machine == "x86_64":
		amd64 := image.Platform{OS: "linux", Arch: "amd64", Variant: amd64Level(cpuinfo)}
		return []image.Platform{amd64.Normalize(), {OS: "linux", Arch: "386"}}
	case machine == "i386", machine == "i486", machine == "i586", machine == "i686":
		return []image.Platform{{OS: "linux", Arch: "386"}}
	}
	p, err := image.ParsePlatform("linux/" + machine)
	if err != nil {
		return nil
	}
	return []image.Platform{p}
}

// amd64Level returns the micro-architecture level of an x86-64 processor,
// judged by the flags that distinguish the levels.
func amd64Level(cpuinfo string) string {
	var flags map[string]bool
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			flags = map[string]bool{}
			for _, f := range strings.Fields(value) {
				flags[f] = true
			}
			break
		}
	}
	has := func(names ...string) bool {
		for _, n := range names {
			if !flags[n] {
				return false
			}
		}
		return true
	}
	switch {
	case !has("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"):
		return "v1"
	case !has("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"):
		return "v2"
	case !has("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"):
		return "v3"
	}
	return "v4"
}
