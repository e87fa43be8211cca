/* The payload's start: a child that shares our memory until its exec, as vfork does, on a stack of
 * its own. What fails there is written into `struct launch`, so no pipe is needed to learn it.
 */
#include "init.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The child's frames: execute_search() holds one path. */
static char child_stack[4 * PATH_MAX] __attribute__((aligned(16)));

/* clone(flags) onto a new stack, where `function(argument)` runs; it must not return. */
long clone_onto(unsigned long flags, void *stack_top, void (*function)(void *), void *argument);

#if defined(__x86_64__)
__asm__(".text\n.global clone_onto\nclone_onto:\n"
	"sub $16, %rsi\n"
	"mov %rdx, (%rsi)\n"
	"mov %rcx, 8(%rsi)\n"
	"xor %edx, %edx\n"
	"xor %r10d, %r10d\n"
	"xor %r8d, %r8d\n"
	"mov $56, %eax\n"
	"syscall\n"
	"test %rax, %rax\n"
	"jnz 1f\n"
	"xor %ebp, %ebp\n"
	"pop %rax\n"
	"pop %rdi\n"
	"call *%rax\n"
	"hlt\n"
	"1: ret\n");
#else
__asm__(".text\n.global clone_onto\nclone_onto:\n"
	"stp x2, x3, [x1, #-16]!\n"
	"mov x2, #0\n"
	"mov x3, #0\n"
	"mov x4, #0\n"
	"mov x8, #220\n"
	"svc 0\n"
	"cbz x0, 1f\n"
	"ret\n"
	"1: mov x29, #0\n"
	"mov x30, #0\n"
	"ldp x1, x0, [sp], #16\n"
	"blr x1\n"
	"brk #0\n");
#endif

_Noreturn static void child_fail(struct launch *launch, unsigned int stage, long error)
{
	launch->stage = stage;
	launch->error = (unsigned int)-error;
	sys_exit(EXIT_FAILED);
}

static const char *environment_value(char **envp, const char *name)
{
	for (; *envp; envp++) {
		const char *entry = *envp, *wanted = name;

		while (*wanted && *entry == *wanted)
			entry++, wanted++;
		if (!*wanted && *entry == '=')
			return entry + 1;
	}
	return 0;
}

static int has_slash(const char *name)
{
	for (; *name; name++)
		if (*name == '/')
			return 1;
	return 0;
}

/* Writes `directory/name`, or `name` alone for an empty directory; returns 0 when too long. */
static int join(char *path, const char *directory, const char *end, const char *name)
{
	unsigned int used = 0;

	for (; directory < end; directory++) {
		if (used >= PATH_MAX - 2)
			return 0;
		path[used++] = *directory;
	}
	if (used)
		path[used++] = '/';
	for (; *name; name++) {
		if (used >= PATH_MAX - 1)
			return 0;
		path[used++] = *name;
	}
	path[used] = 0;
	return 1;
}

/* execvp(3)'s search, but for ENOEXEC, which is an error and not a reason to call a shell.
 * Returns the errno, negative, that a caller of execvp would see. */
static long execute_search(const struct launch *launch)
{
	const char *name = launch->argv[0];
	const char *entry = environment_value(launch->envp, "PATH");
	int denied = 0;

	if (!*name)
		return -ENOENT;
	if (has_slash(name))
		return SYS3(execve, name, launch->argv, launch->envp);
	for (entry = entry ? entry : DEFAULT_PATH;; entry++) {
		char path[PATH_MAX];
		const char *end = entry;

		while (*end && *end != ':')
			end++;
		if (join(path, entry, end, name)) {
			long error = SYS3(execve, path, launch->argv, launch->envp);

			if (error == -EACCES)
				denied = 1;
			else if (error != -ENOENT && error != -ENOTDIR && error != -ENODEV &&
				 error != -ESTALE && error != -ETIMEDOUT)
				return error;
		}
		entry = end;
		if (!*entry)
			return denied ? -EACCES : -ENOENT;
	}
}

/* As another user there are no groups of the init's left (setgroups(2)). */
static long become(unsigned int uid, unsigned int gid)
{
	long result;

	/* Who is that already needs no right to become it. */
	if ((uid == OSBX_OWN_ID || uid == (unsigned int)SYS0(getuid)) &&
	    (gid == OSBX_OWN_ID || gid == (unsigned int)SYS0(getgid)))
		return 0;
	result = SYS2(setgroups, 0, 0);
	if (result >= 0 && gid != OSBX_OWN_ID)
		result = SYS3(setresgid, gid, gid, gid);
	if (result >= 0 && uid != OSBX_OWN_ID)
		result = SYS3(setresuid, uid, uid, uid);
	return result;
}

static void child(void *argument)
{
	struct launch *launch = argument;
	sigset none = 0;
	long result = terminal_acquire(launch);

	if (result < 0)
		child_fail(launch, OSBX_STAGE_TERMINAL, result);
	if (launch->null_stdin) {
		result = SYS4(openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC, 0);
		if (result < 0)
			child_fail(launch, OSBX_STAGE_STDIO, result);
		launch->stdio[0] = (int)result;
	}
	for (int target = 0; target < STDIO_COUNT; target++) {
		if (launch->stdio[target] == NO_DESCRIPTOR)
			continue;
		result = SYS3(dup3, launch->stdio[target], target, 0);
		if (result < 0)
			child_fail(launch, OSBX_STAGE_STDIO, result);
	}
	if (launch->combine) {
		result = SYS3(dup3, 1, 2, 0);
		if (result < 0)
			child_fail(launch, OSBX_STAGE_STDIO, result);
	}
	if (launch->gid != OSBX_OWN_ID || launch->uid != OSBX_OWN_ID) {
		result = become(launch->uid, launch->gid);
		if (result < 0)
			child_fail(launch, OSBX_STAGE_USER, result);
	}
	if (launch->directory) {
		result = SYS1(chdir, launch->directory);
		if (result < 0)
			child_fail(launch, OSBX_STAGE_CHDIR, result);
	}
	SYS4(rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
	if (launch->rules[0][1] == 'w') {
		result = landlock_confine(launch->rules);
		if (result < 0)
			child_fail(launch, OSBX_STAGE_LANDLOCK, result);
	}
	child_fail(launch, OSBX_STAGE_EXEC, execute_search(launch));
}

long clone_child(unsigned long flags, void (*function)(void *), void *argument)
{
	return clone_onto(flags, child_stack + sizeof child_stack, function, argument);
}

static int start_child(struct launch *launch)
{
	long pid;

	launch->stage = 0;
	launch->error = 0;
	pid = clone_child(CLONE_VM | CLONE_VFORK | SIGCHLD, child, launch);
	if (pid < 0) {
		launch->stage = OSBX_STAGE_CLONE;
		launch->error = (unsigned int)-pid;
		return 0;
	}
	return launch->stage ? 0 : (int)pid;
}

/* gVisor holds a terminal that was given up for the first session's still, and refuses it to any
 * other (EPERM). */
int launch_payload(struct launch *launch)
{
	int pid = start_child(launch);

	if (launch->stage != OSBX_STAGE_TERMINAL || launch->error != EPERM ||
	    launch->terminal != TERMINAL_SESSION || terminal_retake(launch) < 0)
		return pid;
	return start_child(launch);
}
