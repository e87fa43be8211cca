/* `--self-test`: what the kernel says of a payload, and what it answers to calls that none may make.
 * One line `NAME VALUE` each; selftest.py reads them. See ocisbx-init(7). Nothing is left behind where
 * a call is let through: this may be run by hand, by root, outside of every container.
 */
#include "init.h"
#include "text.h"

#define KEYCTL_GET_KEYRING_ID 0
#define READ_IMPLIES_EXEC 0x0400000 /* personality(2) */
#define KEY_SPEC_SESSION_KEYRING (-3)

#define FORBIDDEN_FILE "/.ocisbx-self-test"
#define THREAD_FLAGS \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

static void show(const char *name, const char *value)
{
	struct text line = { .used = 0 };

	text_add(&line, name);
	text_add(&line, " ");
	text_add(&line, value);
	line.bytes[line.used++] = '\n';
	SYS3(write, 1, line.bytes, line.used);
}

static void show_number(const char *name, unsigned int value)
{
	struct text number = { .used = 0 };

	text_number(&number, value);
	number.bytes[number.used] = 0;
	show(name, number.bytes);
}

/* The errno of a call, 0 where it worked. */
static void show_errno(const char *name, long result)
{
	show_number(name, result < 0 ? (unsigned int)-result : 0);
}

/* `line` is "Name:\tvalue" of proc_pid_status(5), with a NUL at its end. */
static void show_status(const char *line)
{
	static const char *const names[] = { "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff",
					     "CapBnd", "CapAmb", "Groups" };

	for (unsigned int i = 0; i < sizeof names / sizeof *names; i++) {
		const char *at = line, *name = names[i];

		while (*name && *at == *name)
			at++, name++;
		if (!*name && at[0] == ':' && at[1])
			show(names[i], at + 2);
	}
}

static void show_all_status(void)
{
	char chunk[512];
	struct text line = { .used = 0 };
	long fd = SYS4(openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0), got;

	while ((got = SYS3(read, fd, chunk, sizeof chunk)) > 0)
		for (long i = 0; i < got; i++) {
			if (line.used < TEXT_ROOM - 1 && chunk[i] != '\n')
				line.bytes[line.used++] = chunk[i];
			if (chunk[i] != '\n')
				continue;
			line.bytes[line.used] = 0;
			show_status(line.bytes);
			line.used = 0;
		}
	SYS1(close, fd);
}

static void leave_thread(void *unused)
{
	(void)unused;
	SYS1(exit, 0);
}

static long make_file(void)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	long fd = SYS4(openat, AT_FDCWD, FORBIDDEN_FILE, flags, 0600);

	if (fd >= 0) {
		SYS1(close, fd);
		SYS3(unlinkat, AT_FDCWD, FORBIDDEN_FILE, 0);
	}
	return fd;
}

/* A mount of no type: the kernel asks for the right to mount first, and then refuses with EINVAL. */
static long may_mount(void)
{
	long result = SYS5(mount, 0, "/", 0, 0, 0);

	return result == -EINVAL ? 0 : result;
}

int self_test(void)
{
	long abi = landlock_abi();

	show_all_status();
	show_number("landlock", abi < 0 ? 0 : (unsigned int)abi);
	/* As vfork: the thread's stack is the one of every child. */
	show_errno("clone", clone_child(THREAD_FLAGS | CLONE_VFORK, leave_thread, 0));
	show_errno("clone3", SYS2(clone3, 0, 0));
	show_errno("openat", make_file());
	show_errno("keyctl", SYS3(keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
	show_errno("mount", may_mount());
	/* Of the filter's comparisons of single bits: one that was taken the wrong way lets it through. */
	show_errno("personality", SYS1(personality, READ_IMPLIES_EXEC));
	/* Last: where it works it gives every capability, in a namespace of its own. */
	show_errno("unshare", SYS1(unshare, CLONE_NEWUSER));
	return 0;
}
