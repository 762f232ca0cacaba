package sandbox

import (
	"os"
	"runtime"
	"strings"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// The system calls that stay allowed. Each architecture has only some of them.
const (
	// The runtime's: memory, threads, signals, time.
	runtimeCalls = `
		arch_prctl brk cacheflush clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64
		exit exit_group futex futex_time64 get_robust_list getcpu getegid getegid32 geteuid geteuid32 getgid getgid32 getpgrp getpid getppid
		getrandom getrlimit getrusage gettid gettimeofday getuid getuid32 madvise membarrier mincore mmap mmap2 mprotect mremap munmap
		nanosleep prctl restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait
		rt_sigtimedwait_time64 sched_getaffinity sched_yield set_robust_list set_tid_address set_tls setitimer sigaltstack sigreturn
		sysinfo time timer_create timer_delete timer_settime timer_settime64 ugetrlimit uname`
	// Files; Landlock restricts the paths. The library calls arm64's newfstatat fstatat.
	fileCalls = `
		_llseek access chdir close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fadvise64 fadvise64_64 arm_fadvise64_64
		fallocate fchdir fchmod fchmodat fcntl fcntl64 fdatasync flock fstat fstat64 fstatat fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64
		getcwd getdents getdents64 ioctl linkat lseek lstat lstat64 mkdir mkdirat newfstatat open openat openat2 pread64 preadv preadv2
		pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile sendfile64 splice stat
		stat64 statfs statfs64 statx sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utimensat utimensat_time64 vmsplice write writev`
	// Waiting, and existing pipes and sockets.
	waitCalls = `
		_newselect accept4 bind connect epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd2 getpeername
		getsockname getsockopt pipe pipe2 poll ppoll ppoll_time64 pselect6 pselect6_time64 recvfrom recvmmsg recvmsg select sendmmsg
		sendmsg sendto setsockopt shutdown`
	// Running other programs.
	runCalls = `
		clone clone3 execve execveat fork getpgid getsid kill pidfd_open pidfd_send_signal prlimit64 setpgid setrlimit setsid tgkill tkill vfork
		wait4 waitid`
)

// restrictCalls allows all threads only the system calls of the lists: every other
// call fails with EPERM. It reports whether the kernel supports this.
func restrictCalls(r Rights) (bool, error) {
	known, err := arch.GetInfo("")
	if err != nil || !seccomp.Supported() {
		return false, nil
	}
	words := runtimeCalls + fileCalls + waitCalls
	if r.Run {
		words += runCalls
	}
	allow := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, name := range strings.Fields(words) {
		if _, ok := known.SyscallNames[name]; ok {
			allow.Names = append(allow.Names, name)
		}
	}
	when := func(name string, argument uint32, op seccomp.Operation, value uint64) {
		allow.NamesWithCondtions = append(allow.NamesWithCondtions, seccomp.NameWithConditions{
			Name: name, Conditions: []seccomp.Condition{{Argument: argument, Operation: op, Value: value}},
		})
	}
	if !r.Run {
		when("clone", 0, seccomp.BitsSet, unix.CLONE_THREAD)  // only threads, no processes
		when("kill", 1, seccomp.Equal, 0)                     // whether a process exists
		when("tgkill", 0, seccomp.Equal, uint64(os.Getpid())) // the runtime interrupts its threads
		when("prlimit64", 2, seccomp.Equal, 0)                // to read a limit
	}
	families := []uint64{unix.AF_UNIX}
	if r.Network {
		families = append(families, unix.AF_INET, unix.AF_INET6)
	}
	for _, f := range families {
		when("socket", 0, seccomp.Equal, f)
	}
	when("socketpair", 0, seccomp.Equal, unix.AF_UNIX)
	lists := []seccomp.SyscallGroup{allow}
	if !r.Run {
		// A filter cannot read the flags of clone3. A C library uses clone if the
		// kernel does not know clone3.
		lists = append(lists, seccomp.SyscallGroup{Names: []string{"clone3"}, Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)})
	}

	// The same thread has to set no_new_privs and the filter; TSYNC applies both to
	// all others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy:     seccomp.Policy{DefaultAction: seccomp.ActionErrno, Syscalls: lists},
	})
	return err == nil, err
}
