/* Landlock around the payload (landlock(7)): a ruleset of the child's own, so the init keeps its
 * rights. Reading and executing are not handled: what can be read is the mounts' affair.
 */
#include "init.h"

#define CREATE_RULESET_VERSION 1
#define RULE_PATH_BENEATH 1
#define RESTRICT_SELF_LOG_SUBDOMAINS_OFF 4

#define FS_WRITE_FILE (1UL << 1)
/* remove_dir to make_sym: removing and making names of every kind */
#define FS_NAMES (0x1ffUL << 4)
#define FS_REFER (1UL << 13)
#define FS_TRUNCATE (1UL << 14)
#define FS_IOCTL_DEV (1UL << 15)
#define FS_OF_FILES (FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

#define SCOPE_ABSTRACT_UNIX_SOCKET 1UL
#define SCOPE_SIGNAL 2UL

/* ABI 1 has no FS_REFER, and refuses every rename and link between directories. */
#define ABI_REFER 2
#define ABI_TRUNCATE 3
#define ABI_IOCTL_DEV 5
#define ABI_SCOPE 6
#define ABI_LOG 7

struct ruleset_attr {
	unsigned long handled_access_fs;
	unsigned long handled_access_net;
	unsigned long scoped;
};

struct path_beneath_attr {
	unsigned long allowed_access;
	int parent_fd;
} __attribute__((packed));

long landlock_abi(void)
{
	return SYS3(landlock_create_ruleset, 0, 0, CREATE_RULESET_VERSION);
}

/* A kernel refuses bits that are newer than it is, and takes zeros for fields that it lacks. */
static struct ruleset_attr ruleset_of(long abi)
{
	struct ruleset_attr ruleset = {
		.handled_access_fs = FS_WRITE_FILE | FS_NAMES | FS_REFER,
	};

	if (abi >= ABI_TRUNCATE)
		ruleset.handled_access_fs |= FS_TRUNCATE;
	if (abi >= ABI_IOCTL_DEV)
		ruleset.handled_access_fs |= FS_IOCTL_DEV;
	if (abi >= ABI_SCOPE)
		ruleset.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
	return ruleset;
}

/* EINVAL: a file, which takes no rights of directories. EBADFD: a pipe or a socket, which Landlock
 * leaves alone. */
static long allow_beneath(long ruleset, long fd, unsigned long rights)
{
	struct path_beneath_attr rule = { rights, (int)fd };
	long result = SYS4(landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);

	if (result == -EINVAL) {
		rule.allowed_access &= FS_OF_FILES;
		result = SYS4(landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
	}
	return result == -EBADFD ? 0 : result;
}

static long allow_paths(long ruleset, char **rules, unsigned long rights)
{
	for (; rules[0][1] == 'w'; rules += 2) {
		long result, fd = SYS4(openat, AT_FDCWD, rules[1], O_PATH | O_CLOEXEC, 0);

		/* What the payload cannot reach either needs no rule. */
		if (fd == -ENOENT || fd == -ENOTDIR || fd == -EACCES || fd == -ELOOP)
			continue;
		if (fd < 0)
			return fd;
		result = allow_beneath(ruleset, fd, rights);
		SYS1(close, fd);
		if (result < 0)
			return result;
	}
	return 0;
}

/* A file or a terminal of the caller's lies beneath no path of the container; a payload that may
 * write to it may also open it by /dev/stdout. */
static long allow_stdio(long ruleset, unsigned long rights)
{
	for (int fd = 0; fd < STDIO_COUNT; fd++) {
		long flags = SYS2(fcntl, fd, F_GETFL), result;

		if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
			continue;
		result = allow_beneath(ruleset, fd, rights);
		if (result < 0)
			return result;
	}
	return 0;
}

long landlock_confine(char **rules)
{
	long abi = landlock_abi(), ruleset, result;
	struct ruleset_attr attr = ruleset_of(abi);

	if (abi == -ENOSYS || abi == -EOPNOTSUPP)
		return 0;
	if (abi < ABI_REFER)
		return abi < 0 ? abi : 0;
	ruleset = SYS3(landlock_create_ruleset, &attr, sizeof attr, 0);
	if (ruleset < 0)
		return ruleset;
	result = allow_paths(ruleset, rules, attr.handled_access_fs);
	if (!result)
		result = allow_stdio(ruleset, attr.handled_access_fs);
	/* A payload may confine itself further; its refusals are not to fill the host's audit log. */
	if (!result)
		result = SYS2(landlock_restrict_self, ruleset,
			      abi >= ABI_LOG ? RESTRICT_SELF_LOG_SUBDOMAINS_OFF : 0);
	SYS1(close, ruleset);
	return result;
}
