package sandbox

import (
	"os"
	"runtime"
	"strings"

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
	// Files; Landlock restricts the paths.
	fileCalls = `
		_llseek access chdir close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fadvise64 fadvise64_64 arm_fadvise64_64
		fallocate fchdir fchmod fchmodat fcntl fcntl64 fdatasync flock fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64
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
	if architecture() == 0 || !supported() {
		return false, nil
	}
	f := callFilter(r, known(numbers()), os.Getpid())
	// The same thread has to set no_new_privs and the filter; TSYNC applies both to
	// all others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, os.NewSyscallError("prctl", err)
	}
	err := f.set()
	return err == nil, err
}

// callFilter is the filter for a process with its number.
func callFilter(r Rights, calls map[string]uint32, pid int) *filter {
	f := &filter{calls: calls}
	f.begin()
	words := runtimeCalls + fileCalls + waitCalls
	if r.Run {
		words += runCalls
	}
	var always []uint32
	for _, name := range strings.Fields(words) {
		if n, ok := calls[name]; ok {
			always = append(always, n)
		}
	}
	f.each(always, allow)

	if !r.Run {
		f.whenEqual("kill", 1, 0)                                                     // whether a process is there
		f.whenEqual("tgkill", 0, uint32(pid))                                         // the runtime interrupts its threads
		f.whenEqual("prlimit64", 2, 0)                                                // to read a limit
		f.when(condition{call: calls["clone"], value: unix.CLONE_THREAD, bits: true}) // a thread, no process
		// A filter cannot read the flags of clone3. A C library uses clone if the
		// kernel does not know clone3.
		f.each([]uint32{calls["clone3"]}, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
	}
	f.whenEqual("socket", 0, unix.AF_UNIX)
	if r.Network {
		f.whenEqual("socket", 0, unix.AF_INET)
		f.whenEqual("socket", 0, unix.AF_INET6)
	}
	f.whenEqual("socketpair", 0, unix.AF_UNIX)
	f.end(deny)
	return f
}
