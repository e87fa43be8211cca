/* A directory of the caller's becomes the workspace of a container that is there already.
 *
 * The program waits beside the container until the directory is named, so that what starting takes
 * is spent before. Only then does it copy the host's mounts, which may have changed meanwhile.
 *
 * The mounts are made beforehand, in a mount namespace that nobody else sees, from descriptors: no
 * path of the workspace is looked up twice, and no symlink is followed. The container then gets
 * all of them in one move. Its user namespace is the caller's own, so whoever started it may do
 * all this in it (user_namespaces(7)); the host's mounts are as before.
 */
#include "cell.h"
#include "text.h"

#define ORDER_FD 0
#define CONTAINER_FD 3
/* What ended before it could be given anything. */
#define EXIT_GONE 3
#define ENDING_MS 100

#define AT_EMPTY_PATH 0x1000 /* openat(2), open_tree(2) */
#define AT_RECURSIVE 0x8000
#define OPEN_TREE_CLONE 1
#define OPEN_TREE_CLOEXEC O_CLOEXEC
#define MOVE_MOUNT_F_EMPTY_PATH 4 /* move_mount(2) */
#define MOVE_MOUNT_T_EMPTY_PATH 0x40
#define MOUNT_ATTR_RDONLY 1 /* mount_setattr(2) */
#define MOUNT_ATTR_NOSUID 2
#define MOUNT_ATTR_NODEV 4
#define RESOLVE_NO_MAGICLINKS 2 /* openat2(2) */
#define RESOLVE_NO_SYMLINKS 4
#define RESOLVE_BENEATH 8

struct mount_attr {
	unsigned long set, clear, propagation, user_namespace;
};

struct open_how {
	unsigned long flags, mode, resolve;
};

/* What the driver says, as it comes: it need not have said all of it to have some of it done. */
static struct {
	unsigned int at, end;
	char bytes[PATH_MAX];
} said;

/* The directory, which comes with the first byte: 'r' (read-only) or 'w'. */
static int hear_directory(int *read_only)
{
	union {
		struct cmsghdr header;
		long room[3];
	} control = { .room = { 0 } };
	struct iovec vector = { said.bytes, sizeof said.bytes };
	struct msghdr message = { .vectors = &vector, .vector_count = 1,
				  .control = &control, .control_length = sizeof control };
	long got = SYS3(recvmsg, ORDER_FD, &message, MSG_CMSG_CLOEXEC);

	/* The driver has ended, or has no workspace for this container. */
	if (!got)
		sys_exit(0);
	check("the order", got);
	if (message.control_length < sizeof control.header || control.header.type != SCM_RIGHTS)
		fail("an order without its directory", 0);
	said.end = (unsigned int)got;
	said.at = 1;
	*read_only = said.bytes[0] == 'r';
	return *(int *)(void *)((char *)&control + sizeof control.header);
}

static char hear_byte(void)
{
	if (said.at == said.end) {
		long got = check("the order", SYS3(read, ORDER_FD, said.bytes, sizeof said.bytes));

		/* What was ordered is not wanted any more. */
		if (!got)
			sys_exit(0);
		said.end = (unsigned int)got;
		said.at = 0;
	}
	return said.bytes[said.at++];
}

static const char *hear_word(char *room)
{
	for (int used = 0; used < PATH_MAX; used++)
		if (!(room[used] = hear_byte()))
			return room;
	fail("a word of the order", -ENAMETOOLONG);
}

/* Whether the container's process has ended, or does so at this moment (pidfd_open(2)). */
static int is_gone(void)
{
	struct { int fd; short wanted, found; } end = { CONTAINER_FD, EPOLLIN, 0 };
	struct timespec patience = { 0, ENDING_MS * 1000000L };

	return SYS5(ppoll, &end, 1, &patience, 0, 0) > 0;
}

static void join(int kind)
{
	long joined = SYS2(setns, CONTAINER_FD, kind);

	/* Of one that is on its way out the kernel also says that we may not. */
	if (joined == -ESRCH || (joined == -EPERM && is_gone()))
		sys_exit(EXIT_GONE);
	check("entering the container", joined);
}

/* A mount of its own, attached nowhere, with all that is mounted below it. */
static long clone_mount(const char *name, long directory, const char *path, unsigned int extent)
{
	return check(name, SYS3(open_tree, directory, path,
				OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | extent));
}

static void set_attributes(const char *name, long mount, unsigned long set, unsigned long clear)
{
	struct mount_attr attributes = {
		.set = set | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
		.clear = clear,
		.propagation = MS_PRIVATE,
	};

	check(name, SYS5(mount_setattr, mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes,
			 sizeof attributes));
}

static void attach(const char *name, long mount, long place, unsigned int extent)
{
	check(name, SYS5(move_mount, mount, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | extent));
}

static long open_place(const char *name, long directory, unsigned long flags, unsigned long resolve)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC | flags,
		.resolve = resolve | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return check(name, SYS4(openat2, directory, name, &how, sizeof how));
}

/* `what` is "ro" or "rw", the place itself, or a path of the host, which is shown read-only. */
static void lay_over(int read_only, long tree, const char *what, const char *name)
{
	int writable = text_equal(what, "rw"), itself = writable || text_equal(what, "ro");
	long place = open_place(name, tree, 0, RESOLVE_BENEATH);
	long mount = itself ? clone_mount(name, place, "", AT_EMPTY_PATH | AT_RECURSIVE)
			    : clone_mount(what, AT_FDCWD, what, 0);

	set_attributes(name, mount, writable ? 0 : MOUNT_ATTR_RDONLY,
		       writable && read_only ? MOUNT_ATTR_RDONLY : 0);
	attach(name, mount, place, MOVE_MOUNT_T_EMPTY_PATH);
	SYS1(close, mount);
	SYS1(close, place);
}

void give_workspace(const char *destination)
{
	static const char name[] = "the workspace";
	static char what[PATH_MAX], place[PATH_MAX];
	int read_only, directory = hear_directory(&read_only);
	long tree;

	/* A new mount namespace takes the working directory along: to its own mount of the same
	 * directory, wherever that is by now. */
	check(name, SYS1(fchdir, directory));
	join(CLONE_NEWUSER);
	check("a mount namespace", SYS1(unshare, CLONE_NEWNS));
	tree = clone_mount(name, AT_FDCWD, "", AT_EMPTY_PATH | AT_RECURSIVE);
	set_attributes(name, tree, read_only ? MOUNT_ATTR_RDONLY : 0, 0);
	/* Before Linux 6.15 nothing can be mounted on what is attached nowhere. */
	attach(name, tree, AT_FDCWD, MOVE_MOUNT_T_EMPTY_PATH);
	while (*hear_word(what))
		lay_over(read_only, tree, what, hear_word(place));
	tree = clone_mount(name, tree, "", AT_EMPTY_PATH | AT_RECURSIVE);
	/* It is the host's own mount of it, which is not to be busy when the call has returned. */
	SYS1(close, directory);
	/* Who leaves a mount namespace last takes it apart, which is for when all is said. */
	SYS4(openat, AT_FDCWD, "/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC, 0);
	join(CLONE_NEWNS);
	attach(destination, tree, open_place(destination, AT_FDCWD, O_DIRECTORY, 0),
	       MOVE_MOUNT_T_EMPTY_PATH);
	SYS3(write, ORDER_FD, "\n", 1);
	/* Taking the copy of the mounts apart takes the processor that the command starts on: that is
	 * for when the driver hangs up. */
	SYS3(read, ORDER_FD, said.bytes, 1);
}
