/* ocisbx-cell: starts a runtime in private namespaces, so that nothing of the host is altered.
 *
 *     ocisbx-cell [-u | -j PID] [-m] [-s] [-g DIR] [-C DIR] [-k] -- /ABS/RUNTIME [ARG...]
 *     ocisbx-cell -l PID
 *     ocisbx-cell -w DEST
 *
 * -u  a new user namespace in which the caller's ids are 0
 * -j  the user namespace in which the container of process PID was made: a runtime enters a
 *     container only from there, the new one of another cell has no rights over it
 * -m  a new mount namespace: every mount private, cgroup2 over /sys/fs/cgroup. Stock crun refuses
 *     hybrid hierarchies and looks nowhere else. Where cgroup2 is mounted nowhere, it is mounted
 *     anew, in a new cgroup namespace (the kernel asks for one of our own).
 * -s  a new session keyring, where the kernel has keyrings.
 * -g  the cgroup (its directory) to go into before all else.
 * -C  the working directory.
 * -l  the loopback of the container of process PID is brought up, and nothing is started.
 * -w  waits until stdin, a stream socket, says what becomes a mount at DEST, a directory of the
 *     container whose process descriptor 3 (a pidfd) is; nothing is started. First comes 'r' (it is
 *     to be read-only) or 'w', with the directory's descriptor, then WHAT NUL PATH NUL for each PATH
 *     below it over which WHAT is mounted: "ro" or "rw", itself, or a path of the host, read-only;
 *     last a NUL. A newline is answered when all of it is there. Where stdin ends before, nothing is
 *     mounted. Exit code 3: the process has ended.
 * -k  descriptor 3 is kept too; all above 2 (3) are marked close-on-exec, not closed, so that a
 *     runtime named /proc/self/fd/N can still be executed.
 */
#include "cell.h"
#include "start.h"
#include "text.h"

#define NS_GET_PARENT 0xb702 /* ioctl_nsfs(2) */

#define KEYCTL_JOIN_SESSION_KEYRING 1
#define AF_INET 2
#define SOCK_DGRAM 2
#define SIOCSIFFLAGS 0x8914 /* netdevice(7) */
#define IFF_UP 1

void fail(const char *step, long error)
{
	text_complain(PROGRAM, step, (int)-error);
	sys_exit(EXIT_FAILED);
}

long check(const char *step, long result)
{
	if (result < 0)
		fail(step, result);
	return result;
}

static const char *value(char **argument, const char *usage)
{
	if (!*argument || !**argument)
		fail(usage, 0);
	return *argument;
}

static struct options parse(char **argv)
{
	static const char usage[] = "usage: ocisbx-cell [-u | -j PID] [-m] [-s] [-g DIR] [-C DIR] [-k] -- /ABS/RUNTIME [ARG...]"
		" | -l PID | -w DEST";
	struct options options = { .user = 0 };

	for (argv++; *argv; argv++) {
		const char *argument = *argv;

		if (argument[0] != '-' || !argument[1] || argument[2])
			fail(usage, 0);
		switch (argument[1]) {
		case 'u': options.user = 1; break;
		case 'm': options.mount = 1; break;
		case 's': options.session = 1; break;
		case 'k': options.keep = 1; break;
		case 'j': options.joined = value(++argv, usage); break;
		case 'l': options.looped = value(++argv, usage); break;
		case 'w': options.workspace = value(++argv, usage); break;
		case 'g': options.cgroup = value(++argv, usage); break;
		case 'C': options.directory = value(++argv, usage); break;
		case '-':
			options.argv = argv + 1;
			if (!*options.argv || **options.argv != '/')
				fail(usage, 0);
			return options;
		default: fail(usage, 0);
		}
	}
	if (!options.looped && !options.workspace)
		fail(usage, 0);
	return options;
}

static void write_file(const char *path, const char *content, unsigned int length)
{
	long fd = check(path, SYS4(openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0));

	check(path, SYS3(write, fd, content, length));
	SYS1(close, fd);
}

static void map_to_root(const char *path, unsigned int id)
{
	struct text line = { .used = 0 };

	text_add(&line, "0 ");
	text_number(&line, id);
	text_add(&line, " 1");
	write_file(path, line.bytes, line.used);
}

/* setgroups is denied first: the kernel lets an unprivileged process write gid_map only then. */
static void map_ids(unsigned int uid, unsigned int gid)
{
	write_file("/proc/self/setgroups", "deny", 4);
	map_to_root("/proc/self/uid_map", uid);
	map_to_root("/proc/self/gid_map", gid);
}

static long open_namespace(const char *pid, const char *kind)
{
	struct text path = { .used = 0 };

	text_add(&path, "/proc/");
	text_add(&path, pid);
	text_add(&path, "/ns/");
	text_add(&path, kind);
	path.bytes[path.used] = 0;
	return check("the container's namespaces",
		     SYS4(openat, AT_FDCWD, path.bytes, O_RDONLY | O_CLOEXEC, 0));
}

static void join_parent_of(const char *pid)
{
	long own = open_namespace(pid, "user"), parent;

	parent = check("its parent", SYS3(ioctl, own, NS_GET_PARENT, 0));
	check("setns", SYS2(setns, parent, CLONE_NEWUSER));
	SYS1(close, parent);
	SYS1(close, own);
}

static void enter_cgroup(const char *directory)
{
	long parent = check(directory, SYS4(openat, AT_FDCWD, directory,
					    O_RDONLY | O_CLOEXEC, 0));
	long fd = check("cgroup.procs",
			SYS4(openat, parent, "cgroup.procs", O_WRONLY | O_CLOEXEC, 0));

	check("entering the cgroup", SYS3(write, fd, "0", 1));
	SYS1(close, fd);
	SYS1(close, parent);
}

/* netdevice(7): of struct ifreq only the name and the flags are looked at. */
static void raise_loopback(const char *pid)
{
	struct { char name[16]; short flags; char rest[22]; } request = { "lo", IFF_UP, "" };
	long user = open_namespace(pid, "user"), net = open_namespace(pid, "net"), fd;

	check("setns", SYS2(setns, user, CLONE_NEWUSER));
	check("setns", SYS2(setns, net, CLONE_NEWNET));
	fd = check("a socket", SYS3(socket, AF_INET, SOCK_DGRAM, 0));
	check("the loopback", SYS3(ioctl, fd, SIOCSIFFLAGS, &request));
}

/* What refuses keyctl to us refuses it to all that we start. */
static void leave_session(void)
{
	long joined = SYS2(keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0);

	if (joined != -ENOSYS && joined != -EPERM)
		check("a session keyring", joined);
}

static void arrange_mounts(void)
{
	long mounted;

	check("mounts private", SYS5(mount, 0, "/", 0, MS_REC | MS_PRIVATE, 0));
	if (SYS5(mount, "/sys/fs/cgroup/unified", "/sys/fs/cgroup", 0, MS_BIND, 0) == 0)
		return;
	check("a cgroup namespace", SYS1(unshare, CLONE_NEWCGROUP));
	mounted = SYS5(mount, "cgroup2", "/sys/fs/cgroup", "cgroup2",
		       MS_NOSUID | MS_NODEV | MS_NOEXEC, 0);
	/* Where it is there alone already, the kernel mounts it no second time. */
	if (mounted != -EBUSY)
		check("cgroup2 on /sys/fs/cgroup", mounted);
}

int program(int argc, char **argv, char **envp)
{
	struct options options = parse(argv);
	unsigned int uid = (unsigned int)SYS0(geteuid), gid = (unsigned int)SYS0(getegid);
	unsigned int flags = (options.user ? CLONE_NEWUSER : 0) |
			     (options.mount ? CLONE_NEWNS : 0);

	(void)argc;
	if (options.looped) {
		raise_loopback(options.looped);
		return 0;
	}
	if (options.workspace) {
		give_workspace(options.workspace);
		return 0;
	}
	if (options.cgroup)
		enter_cgroup(options.cgroup);
	if (options.directory)
		check(options.directory, SYS1(chdir, options.directory));
	if (options.session)
		leave_session();
	if (options.joined)
		join_parent_of(options.joined);
	check("namespaces", SYS1(unshare, flags));
	if (options.user)
		map_ids(uid, gid);
	if (options.mount)
		arrange_mounts();
	sys_cloexec_from(options.keep ? 4 : 3);
	fail(options.argv[0], SYS3(execve, options.argv[0], options.argv, envp));
}
