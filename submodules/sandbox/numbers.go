package sandbox

import "runtime"

// The numbers of the calls above, as the kernel has them for each architecture. They
// are text that is read when a filter is made: as maps, they would be filled whenever a
// program starts. A call that is missing does not exist there.
const (
	numbersARM = `
		restart_syscall:0 exit:1 fork:2 read:3 write:4 open:5 close:6 unlink:10 execve:11 chdir:12 lseek:19 getpid:20 getuid:24 access:33 kill:37
		rename:38 mkdir:39 rmdir:40 dup:41 pipe:42 brk:45 getgid:47 geteuid:49 getegid:50 ioctl:54 fcntl:55 setpgid:57 umask:60 dup2:63 getppid:64
		getpgrp:65 setsid:66 setrlimit:75 getrusage:77 gettimeofday:78 readlink:85 munmap:91 truncate:92 ftruncate:93 fchmod:94 statfs:99
		fstatfs:100 setitimer:104 stat:106 lstat:107 fstat:108 wait4:114 sysinfo:116 fsync:118 sigreturn:119 clone:120 uname:122 mprotect:125
		getpgid:132 fchdir:133 _llseek:140 getdents:141 _newselect:142 flock:143 readv:145 writev:146 getsid:147 fdatasync:148 sched_yield:158
		nanosleep:162 mremap:163 poll:168 prctl:172 rt_sigreturn:173 rt_sigaction:174 rt_sigprocmask:175 rt_sigpending:176 rt_sigtimedwait:177
		rt_sigsuspend:179 pread64:180 pwrite64:181 getcwd:183 sigaltstack:186 sendfile:187 vfork:190 ugetrlimit:191 mmap2:192 truncate64:193
		ftruncate64:194 stat64:195 lstat64:196 fstat64:197 getuid32:199 getgid32:200 geteuid32:201 getegid32:202 getdents64:217 mincore:219
		madvise:220 fcntl64:221 gettid:224 readahead:225 tkill:238 sendfile64:239 futex:240 sched_getaffinity:242 exit_group:248 epoll_create:250
		epoll_ctl:251 epoll_wait:252 set_tid_address:256 timer_create:257 timer_settime:258 timer_delete:261 clock_gettime:263 clock_getres:264
		clock_nanosleep:265 statfs64:266 fstatfs64:267 tgkill:268 arm_fadvise64_64:270 waitid:280 socket:281 bind:282 connect:283 getsockname:286
		getpeername:287 socketpair:288 sendto:290 recvfrom:292 shutdown:293 setsockopt:294 getsockopt:295 sendmsg:296 recvmsg:297 openat:322
		mkdirat:323 fstatat64:327 unlinkat:328 renameat:329 linkat:330 readlinkat:332 fchmodat:333 faccessat:334 pselect6:335 ppoll:336
		set_robust_list:338 get_robust_list:339 splice:340 tee:342 vmsplice:343 getcpu:345 epoll_pwait:346 utimensat:348 fallocate:352 eventfd2:356
		epoll_create1:357 dup3:358 pipe2:359 preadv:361 pwritev:362 recvmmsg:365 accept4:366 prlimit64:369 syncfs:373 sendmmsg:374 renameat2:382
		getrandom:384 execveat:387 membarrier:389 copy_file_range:391 preadv2:392 pwritev2:393 statx:397 rseq:398 clock_gettime64:403
		clock_getres_time64:406 clock_nanosleep_time64:407 timer_settime64:409 utimensat_time64:412 pselect6_time64:413 ppoll_time64:414
		rt_sigtimedwait_time64:421 futex_time64:422 pidfd_send_signal:424 pidfd_open:434 clone3:435 close_range:436 openat2:437 faccessat2:439
		epoll_pwait2:441 cacheflush:983042 set_tls:983045`
	numbersARM64 = `
		getcwd:17 eventfd2:19 epoll_create1:20 epoll_ctl:21 epoll_pwait:22 dup:23 dup3:24 fcntl:25 ioctl:29 flock:32 mkdirat:34 unlinkat:35
		linkat:37 renameat:38 statfs:43 fstatfs:44 truncate:45 ftruncate:46 fallocate:47 faccessat:48 chdir:49 fchdir:50 fchmod:52 fchmodat:53
		openat:56 close:57 pipe2:59 getdents64:61 lseek:62 read:63 write:64 readv:65 writev:66 pread64:67 pwrite64:68 preadv:69 pwritev:70
		sendfile:71 pselect6:72 ppoll:73 vmsplice:75 splice:76 tee:77 readlinkat:78 newfstatat:79 fstat:80 fsync:82 fdatasync:83 sync_file_range:84
		utimensat:88 exit:93 exit_group:94 waitid:95 set_tid_address:96 futex:98 set_robust_list:99 get_robust_list:100 nanosleep:101 setitimer:103
		timer_create:107 timer_settime:110 timer_delete:111 clock_gettime:113 clock_getres:114 clock_nanosleep:115 sched_getaffinity:123
		sched_yield:124 restart_syscall:128 kill:129 tkill:130 tgkill:131 sigaltstack:132 rt_sigsuspend:133 rt_sigaction:134 rt_sigprocmask:135
		rt_sigpending:136 rt_sigtimedwait:137 rt_sigreturn:139 setpgid:154 getpgid:155 getsid:156 setsid:157 uname:160 getrlimit:163 setrlimit:164
		getrusage:165 umask:166 prctl:167 getcpu:168 gettimeofday:169 getpid:172 getppid:173 getuid:174 geteuid:175 getgid:176 getegid:177
		gettid:178 sysinfo:179 socket:198 socketpair:199 bind:200 connect:203 getsockname:204 getpeername:205 sendto:206 recvfrom:207 setsockopt:208
		getsockopt:209 shutdown:210 sendmsg:211 recvmsg:212 readahead:213 brk:214 munmap:215 mremap:216 clone:220 execve:221 mmap:222 fadvise64:223
		mprotect:226 mincore:232 madvise:233 accept4:242 recvmmsg:243 wait4:260 prlimit64:261 syncfs:267 sendmmsg:269 renameat2:276 getrandom:278
		execveat:281 membarrier:283 copy_file_range:285 preadv2:286 pwritev2:287 statx:291 rseq:293 pidfd_send_signal:424 pidfd_open:434 clone3:435
		close_range:436 openat2:437 faccessat2:439 epoll_pwait2:441`
	numbersAMD64 = `
		read:0 write:1 open:2 close:3 stat:4 fstat:5 lstat:6 poll:7 lseek:8 mmap:9 mprotect:10 munmap:11 brk:12 rt_sigaction:13 rt_sigprocmask:14
		rt_sigreturn:15 ioctl:16 pread64:17 pwrite64:18 readv:19 writev:20 access:21 pipe:22 select:23 sched_yield:24 mremap:25 mincore:27
		madvise:28 dup:32 dup2:33 nanosleep:35 setitimer:38 getpid:39 sendfile:40 socket:41 connect:42 sendto:44 recvfrom:45 sendmsg:46 recvmsg:47
		shutdown:48 bind:49 getsockname:51 getpeername:52 socketpair:53 setsockopt:54 getsockopt:55 clone:56 fork:57 vfork:58 execve:59 exit:60
		wait4:61 kill:62 uname:63 fcntl:72 flock:73 fsync:74 fdatasync:75 truncate:76 ftruncate:77 getdents:78 getcwd:79 chdir:80 fchdir:81
		rename:82 mkdir:83 rmdir:84 unlink:87 readlink:89 fchmod:91 umask:95 gettimeofday:96 getrlimit:97 getrusage:98 sysinfo:99 getuid:102
		getgid:104 geteuid:107 getegid:108 setpgid:109 getppid:110 getpgrp:111 setsid:112 getpgid:121 getsid:124 rt_sigpending:127
		rt_sigtimedwait:128 rt_sigsuspend:130 sigaltstack:131 statfs:137 fstatfs:138 prctl:157 arch_prctl:158 setrlimit:160 gettid:186 readahead:187
		tkill:200 time:201 futex:202 sched_getaffinity:204 epoll_create:213 getdents64:217 set_tid_address:218 restart_syscall:219 fadvise64:221
		timer_create:222 timer_settime:223 timer_delete:226 clock_gettime:228 clock_getres:229 clock_nanosleep:230 exit_group:231 epoll_wait:232
		epoll_ctl:233 tgkill:234 waitid:247 openat:257 mkdirat:258 newfstatat:262 unlinkat:263 renameat:264 linkat:265 readlinkat:267 fchmodat:268
		faccessat:269 pselect6:270 ppoll:271 set_robust_list:273 get_robust_list:274 splice:275 tee:276 sync_file_range:277 vmsplice:278
		utimensat:280 epoll_pwait:281 fallocate:285 accept4:288 eventfd2:290 epoll_create1:291 dup3:292 pipe2:293 preadv:295 pwritev:296
		recvmmsg:299 prlimit64:302 syncfs:306 sendmmsg:307 getcpu:309 renameat2:316 getrandom:318 execveat:322 membarrier:324 copy_file_range:326
		preadv2:327 pwritev2:328 statx:332 rseq:334 pidfd_send_signal:424 pidfd_open:434 clone3:435 close_range:436 openat2:437 faccessat2:439
		epoll_pwait2:441`
)

// numbers are those of this architecture, as NAME:NUMBER; "" if they are not known.
func numbers() string {
	switch runtime.GOARCH {
	case "arm":
		return numbersARM
	case "arm64":
		return numbersARM64
	case "amd64":
		return numbersAMD64
	}
	return ""
}
