/* The terminal that the runtime gave process 1, which leads the session that it controls: it becomes
 * the payload's, with which job control works, and Ctrl-C, as at a login.
 */
#include "init.h"

/* A session's leader that gives its terminal up is sent SIGHUP and SIGCONT (ioctl_tty(2)): none of
 * the payload's. */
long terminal_release(struct init *init)
{
	long result = SYS3(ioctl, 0, TIOCNOTTY, 0);

	if (result < 0)
		return result;
	init->launch.terminal = TERMINAL_SESSION;
	while (next_signal(init))
		;
	return 0;
}

long terminal_retake(struct launch *launch)
{
	launch->terminal = TERMINAL_GROUP;
	return SYS3(ioctl, 0, TIOCSCTTY, 0);
}

/* The signals are blocked still: a process group of the background may call TIOCSPGRP then. */
long terminal_acquire(const struct launch *launch)
{
	long result;
	int group;

	if (launch->terminal != TERMINAL_GROUP) {
		result = SYS0(setsid);
		if (result < 0 || launch->terminal == TERMINAL_NONE)
			return result;
		return SYS3(ioctl, 0, TIOCSCTTY, 0);
	}
	result = SYS2(setpgid, 0, 0);
	if (result < 0)
		return result;
	group = (int)SYS0(getpid);
	return SYS3(ioctl, 0, TIOCSPGRP, &group);
}

/* gVisor knows no TIOCGPTPEER; its terminals have their names in a file system of its own. */
static long open_by_number(int controller)
{
	char path[] = "/dev/pts/0000000000", *digit = path + sizeof path - 1;
	unsigned int number = 0;
	long result = SYS3(ioctl, controller, TIOCGPTN, &number);

	if (result < 0)
		return result;
	do
		*--digit = (char)('0' + number % 10);
	while (number /= 10);
	while (digit > path + sizeof "/dev/pts/" - 1)
		*--digit = '/';
	return SYS4(openat, AT_FDCWD, path, O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
}

/* Without a path: whoever may write in the container's /dev cannot put another in its place. */
static long open_peer(int controller)
{
	int locked = 0;
	long result = SYS3(ioctl, controller, TIOCSPTLCK, &locked);

	if (result >= 0)
		result = SYS3(ioctl, controller, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	return result == -ENOTTY || result == -EINVAL ? open_by_number(controller) : result;
}

long terminal_open(unsigned int uid)
{
	long controller = SYS4(openat, AT_FDCWD, "/dev/ptmx",
			       O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0);
	long terminal, result = 0;

	if (controller < 0)
		return controller;
	terminal = open_peer((int)controller);
	/* Who may become a user and not give a file away, or not become it either, has one that is open
	 * all the same, and hears of the user later. */
	if (terminal >= 0 && uid != OSBX_OWN_ID)
		SYS3(fchown, terminal, uid, OSBX_OWN_ID);
	for (int fd = 0; terminal >= 0 && result >= 0 && fd < STDIO_COUNT; fd++)
		result = SYS3(dup3, terminal, fd, 0);
	if (terminal >= 0)
		SYS1(close, terminal);
	if (terminal >= 0 && result >= 0)
		return controller;
	SYS1(close, controller);
	return terminal < 0 ? terminal : result;
}
