/* What descends from a process, by /proc: orphans of a leader come back to it, so none escapes but
 * by its death.
 */
#include "init.h"

#define DIRECTORY_ROOM 4096
#define DEPTH_LIMIT 4096

struct directory_entry {
	unsigned long inode;
	unsigned long offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

static int number_of(const char *digits)
{
	int value = 0;

	for (; *digits >= '0' && *digits <= '9' && value < 100000000; digits++)
		value = value * 10 + *digits - '0';
	return *digits && *digits != ' ' ? 0 : value;
}

static unsigned int add_text(char *to, const char *text)
{
	unsigned int length = 0;

	while (text[length]) {
		to[length] = text[length];
		length++;
	}
	return length;
}

/* proc_pid_stat(5): "PID (NAME) STATE PPID ..."; a NAME of the payload's may hold anything, so what
 * counts is the last parenthesis. 0: it has none here; negative: it is not there. What is dead but not
 * reaped has one, and may have threads that live (pthread_exit(3) of its first). */
static int parent_of(int pid)
{
	char path[32], digits[12], line[512];
	unsigned int used = add_text(path, "/proc/");
	int at = sizeof digits - 1;
	long fd, got;

	digits[at] = 0;
	do
		digits[--at] = (char)('0' + pid % 10);
	while (pid /= 10);
	used += add_text(path + used, digits + at);
	used += add_text(path + used, "/stat");
	path[used] = 0;
	fd = SYS4(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	got = SYS3(read, fd, line, sizeof line - 1);
	SYS1(close, fd);
	if (got <= 0)
		return -1;
	line[got] = 0;
	while (got && line[got] != ')')
		got--;
	if (!got || line[got + 1] != ' ')
		return -1;
	return number_of(line + got + 4);
}

/* An ancestor that was signalled a moment ago may go while we look, and its children have another
 * parent by then: so all of it is looked at again. */
static int descends(int pid, int ancestor)
{
	int at = pid;

	for (int looked = 0; looked < DEPTH_LIMIT && at > 1; looked++) {
		int parent = parent_of(at);

		if (parent == ancestor)
			return 1;
		if (parent < 0 && at == pid)
			return 0;
		at = parent < 0 ? pid : parent;
	}
	return 0;
}

unsigned int signal_descendants(int signo)
{
	char room[DIRECTORY_ROOM] __attribute__((aligned(8)));
	long fd = SYS4(openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), got;
	int self = (int)SYS0(getpid);
	unsigned int found = 0;

	if (fd < 0)
		return 0;
	while ((got = SYS3(getdents64, fd, room, sizeof room)) > 0) {
		for (long at = 0; at < got;) {
			struct directory_entry *entry = (struct directory_entry *)(room + at);
			int pid = number_of(entry->name);

			at += entry->length;
			if (!pid || pid == self || !descends(pid, self))
				continue;
			SYS2(kill, pid, signo);
			found++;
		}
	}
	SYS1(close, fd);
	return found;
}
