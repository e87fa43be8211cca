/* The kernel's interface without a C library: numbers, structures, wrappers.
 *
 * Wrappers return what the kernel returns: a value, or a negative errno. Numbers are those of
 * Linux's asm/unistd.h and asm-generic headers; the structures are those of 64-bit Linux.
 */
#ifndef OSBX_SYS_H
#define OSBX_SYS_H

#if defined(__x86_64__)
#define NR_epoll_pwait 281
#define NR_ppoll 271
#define NR_epoll_create1 291
#define NR_epoll_ctl 233
#define NR_setsockopt 54
#define NR_read 0
#define NR_write 1
#define NR_close 3
#define NR_rt_sigaction 13
#define NR_rt_sigprocmask 14
#define NR_ioctl 16
#define NR_getpid 39
#define NR_sendmsg 46
#define NR_recvmsg 47
#define NR_getsockopt 55
#define NR_execve 59
#define NR_wait4 61
#define NR_kill 62
#define NR_fcntl 72
#define NR_fchown 93
#define NR_geteuid 107
#define NR_getegid 108
#define NR_setsid 112
#define NR_setpgid 109
#define NR_prctl 157
#define NR_sched_setscheduler 144
#define NR_mount 165
#define NR_clock_gettime 228
#define NR_exit 60
#define NR_exit_group 231
#define NR_keyctl 250
#define NR_socket 41
#define NR_chdir 80
#define NR_fchdir 81
#define NR_personality 135
#define NR_openat 257
#define NR_unlinkat 263
#define NR_unshare 272
#define NR_signalfd4 289
#define NR_dup3 292
#define NR_pipe2 293
#define NR_setns 308
#define NR_mmap 9
#define NR_clone 56
#define NR_getdents64 217
#define NR_getuid 102
#define NR_getgid 104
#define NR_setgroups 116
#define NR_setresuid 117
#define NR_setresgid 119
#elif defined(__aarch64__)
#define NR_epoll_pwait 22
#define NR_ppoll 73
#define NR_epoll_create1 20
#define NR_epoll_ctl 21
#define NR_setsockopt 208
#define NR_read 63
#define NR_write 64
#define NR_close 57
#define NR_rt_sigaction 134
#define NR_rt_sigprocmask 135
#define NR_ioctl 29
#define NR_getpid 172
#define NR_sendmsg 211
#define NR_recvmsg 212
#define NR_getsockopt 209
#define NR_execve 221
#define NR_wait4 260
#define NR_kill 129
#define NR_fcntl 25
#define NR_fchown 55
#define NR_geteuid 175
#define NR_getegid 177
#define NR_setsid 157
#define NR_setpgid 154
#define NR_prctl 167
#define NR_sched_setscheduler 119
#define NR_mount 40
#define NR_clock_gettime 113
#define NR_exit 93
#define NR_exit_group 94
#define NR_keyctl 219
#define NR_socket 198
#define NR_chdir 49
#define NR_fchdir 50
#define NR_personality 92
#define NR_openat 56
#define NR_unlinkat 35
#define NR_unshare 97
#define NR_signalfd4 74
#define NR_dup3 24
#define NR_pipe2 59
#define NR_setns 268
#define NR_mmap 222
#define NR_clone 220
#define NR_getdents64 61
#define NR_getuid 174
#define NR_getgid 176
#define NR_setgroups 159
#define NR_setresuid 147
#define NR_setresgid 149
#else
#error "the init is written for x86_64 and aarch64"
#endif
#define NR_open_tree 428
#define NR_move_mount 429
#define NR_clone3 435
#define NR_close_range 436
#define NR_openat2 437
#define NR_mount_setattr 442
#define NR_landlock_create_ruleset 444
#define NR_landlock_add_rule 445
#define NR_landlock_restrict_self 446

#define SCHED_BATCH 3

#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define EINTR 4
#define E2BIG 7
#define ENOEXEC 8
#define ECHILD 10
#define EAGAIN 11
#define ENOMEM 12
#define EACCES 13
#define EBUSY 16
#define ENODEV 19
#define ENOTDIR 20
#define EINVAL 22
#define EMFILE 24
#define ENOTTY 25
#define ENOSPC 28
#define ENAMETOOLONG 36
#define ENOSYS 38
#define ELOOP 40
#define EBADFD 77
#define EUSERS 87
#define EOPNOTSUPP 95
#define ETIMEDOUT 110
#define ESTALE 116

#define SIGHUP 1
#define SIGINT 2
#define SIGQUIT 3
#define SIGKILL 9
#define SIGTERM 15
#define SIGCHLD 17
#define SIGSTOP 19
#define SIGWINCH 28
#define SIGNAL_MAX 64
#define SIG_SETMASK 2

#define AT_FDCWD (-100)
#define O_RDONLY 0
#define O_WRONLY 1
#define O_RDWR 2
#define O_ACCMODE 3
#define O_CREAT 0100
#define O_EXCL 0200
#define O_NOCTTY 0400
#define O_NONBLOCK 04000
#if defined(__x86_64__)
#define O_DIRECTORY 0200000
#else
#define O_DIRECTORY 040000
#endif
#define O_CLOEXEC 02000000
#define O_PATH 010000000
#define F_GETFD 1
#define F_SETFD 2
#define F_GETFL 3
#define FD_CLOEXEC 1
#define CLOSE_RANGE_CLOEXEC 4

#define CLONE_VM 0x100
#define CLONE_FS 0x200
#define CLONE_FILES 0x400
#define CLONE_SIGHAND 0x800
#define CLONE_VFORK 0x4000
#define CLONE_THREAD 0x10000
#define CLONE_NEWNS 0x20000
#define CLONE_SYSVSEM 0x40000
#define CLONE_NEWCGROUP 0x2000000
#define CLONE_NEWUSER 0x10000000
#define CLONE_NEWNET 0x40000000

#define MS_NOSUID 2
#define MS_NODEV 4
#define MS_NOEXEC 8
#define MS_REC 0x4000
#define MS_BIND 0x1000
#define MS_PRIVATE 0x40000

#define SOL_SOCKET 1
#define SO_TYPE 3
#define SO_SNDTIMEO 21
#define SOCK_SEQPACKET 5
#define SCM_RIGHTS 1
#define MSG_PEEK 2
#define MSG_CTRUNC 8
#define MSG_TRUNC 0x20
#define MSG_DONTWAIT 0x40
#define MSG_NOSIGNAL 0x4000
#define MSG_CMSG_CLOEXEC 0x40000000

#define EPOLLIN 1
#define EPOLLOUT 4
#define EPOLL_CTL_ADD 1
#define EPOLL_CTL_DEL 2
#define EPOLL_CTL_MOD 3
#define EPOLL_CLOEXEC O_CLOEXEC
#define WNOHANG 1
#define WUNTRACED 2
#define CLOCK_MONOTONIC 1
#define PR_SET_DUMPABLE 4
#define PR_SET_CHILD_SUBREAPER 36
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define TIOCSCTTY 0x540e
#define TIOCSPGRP 0x5410
#define TIOCSWINSZ 0x5414
#define TIOCSPTLCK 0x40045431
#define TIOCGPTN 0x80045430
#define TIOCGPTPEER 0x5441
#define TIOCNOTTY 0x5422
#define SFD_CLOEXEC O_CLOEXEC
#define SFD_NONBLOCK 04000

#define PATH_MAX 4096

struct timespec {
	long tv_sec;
	long tv_nsec;
};

/* Packed on x86_64 only (epoll_ctl(2)'s kernel side); the data is never read here. */
struct epoll_event {
	unsigned int events;
	unsigned int data[3];
};

struct iovec {
	void *base;
	unsigned long length;
};

struct msghdr {
	void *name;
	unsigned int name_length;
	struct iovec *vectors;
	unsigned long vector_count;
	void *control;
	unsigned long control_length;
	unsigned int flags;
};

struct cmsghdr {
	unsigned long length;
	int level;
	int type;
};

/* The kernel's own layout (not libc's): x86_64 needs no restorer, since only SIG_DFL is set. */
struct sigaction {
	void *handler;
	unsigned long flags;
	void *restorer;
	unsigned long mask;
};

struct signalfd_info {
	unsigned int signo;
	int error;
	int code;
	unsigned int sender;
	char rest[112];
};

struct timeval {
	long tv_sec;
	long tv_usec;
};

struct rusage {
	struct timeval utime, stime;
	long maxrss, ixrss, idrss, isrss, minflt, majflt, nswap, inblock, oublock;
	long msgsnd, msgrcv, nsignals, nvcsw, nivcsw;
};

static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
		: "=a"(result)
		: "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
		: "+r"(x0)
		: "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		: "memory");
	return x0;
#endif
}

#define SYS0(name) sys6(NR_##name, 0, 0, 0, 0, 0, 0)
#define SYS1(name, a) sys6(NR_##name, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(name, a, b) sys6(NR_##name, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(name, a, b, c) sys6(NR_##name, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(name, a, b, c, d) \
	sys6(NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS5(name, a, b, c, d, e) \
	sys6(NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

#define SYS6(name, a, b, c, d, e, f) \
	sys6(NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

_Noreturn static inline void sys_exit(int status)
{
	for (;;)
		SYS1(exit_group, status);
}

/* Marks every descriptor from `first` on close-on-exec. CLOSE_RANGE_CLOEXEC came with Linux 5.11;
 * an older kernel, or a filter that answers ENOSYS, gets the first 4096 done one by one. */
static inline void sys_cloexec_from(int first)
{
	if (SYS3(close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
		return;
	for (int fd = first; fd < 4096; fd++)
		SYS3(fcntl, fd, F_SETFD, FD_CLOEXEC);
}

#endif
