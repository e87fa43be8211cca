/* A command's start: what GO or RUN say becomes `struct launch`, and how it went is reported. */
#include "init.h"
#include "text.h"

/* Reads as much, or less where the file is shorter; the file is the driver's, sealed or not. */
static int read_all(int fd, char *to, unsigned long size)
{
	while (size) {
		long got = SYS3(read, fd, to, size);

		if (got <= 0)
			return 0;
		to += got;
		size -= (unsigned long)got;
	}
	return 1;
}

/* Points at `count` strings, and behind them at nothing; returns where the next one starts, or 0
 * when they do not end in time. */
static char *point_at(char **pointers, unsigned int count, char *from, const char *end)
{
	for (unsigned int i = 0; i < count; i++) {
		pointers[i] = from;
		while (from < end && *from)
			from++;
		if (from++ >= end)
			return 0;
	}
	pointers[count] = 0;
	return from;
}

int run_prepare(struct launch *launch, const struct packet *packet, int store)
{
	const struct osbx_run *run = &packet->run;
	unsigned long pointers = (unsigned long)run->argc + run->envc + 3;
	char **table, *strings, *next;
	long room;

	if (!run->argc || !run->size)
		return 0;
	room = SYS6(mmap, 0, pointers * sizeof(char *) + run->size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room < 0 && room > -PATH_MAX)
		return 0;
	table = (char **)room;
	strings = (char *)(table + pointers);
	if (store == NO_DESCRIPTOR)
		memcpy(strings, packet->strings, run->size);
	else if (!read_all(store, strings, run->size))
		return 0;
	next = point_at(table, 1, strings, strings + run->size);
	launch->directory = *strings ? strings : 0;
	launch->argv = table + 1;
	if (next)
		next = point_at(launch->argv, run->argc, next, strings + run->size);
	launch->envp = launch->argv + run->argc + 1;
	if (next)
		next = point_at(launch->envp, run->envc, next, strings + run->size);
	launch->uid = run->uid;
	launch->gid = run->gid;
	return next == strings + run->size;
}

int assign_descriptors(struct launch *launch, const struct packet *packet, unsigned int flags,
		       struct run_fds *fds)
{
	static const unsigned int flag_of[STDIO_COUNT] = { OSBX_GO_STDIN, OSBX_GO_STDOUT,
							   OSBX_GO_STDERR };
	unsigned int next = 0;

	fds->store = NO_DESCRIPTOR;
	fds->channel = NO_DESCRIPTOR;
	for (int target = 0; target < STDIO_COUNT; target++)
		if (flags & flag_of[target] && next < PACKET_FDS)
			launch->stdio[target] = packet->fds[next++];
	if (flags & OSBX_GO_STORED && next < PACKET_FDS)
		fds->store = packet->fds[next++];
	if (flags & OSBX_GO_CHANNEL && next < PACKET_FDS)
		fds->channel = packet->fds[next++];
	launch->null_stdin = !(flags & (OSBX_GO_STDIN | OSBX_GO_TERMINAL));
	launch->combine = !!(flags & OSBX_GO_COMBINE);
	return next == packet->fd_count;
}

/* execve(2): there is nothing by this name. */
static int is_nothing(unsigned int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG;
}

static int fail(struct init *init)
{
	unsigned int stage = init->launch.stage, error = init->launch.error;
	const char *step = stage == OSBX_STAGE_LANDLOCK ? "landlock" : init->launch.argv[0];

	if (init->driven)
		report_pair(OSBX_TYPE_FAILED, OSBX_COMMAND_PAYLOAD, stage, error);
	else
		text_complain(PROGRAM, step, (int)error);
	wait_for_end(init);
	if (stage != OSBX_STAGE_EXEC)
		return EXIT_FAILED;
	return is_nothing(error) ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* Lets go of the descriptors that the payload has now. Open they stay: where one of 0 to 2 was free,
 * what a later packet brings would land there, and be overwritten by a payload's. */
static void release_stdio(void)
{
	long null = SYS4(openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);

	for (int fd = 0; fd < STDIO_COUNT; fd++)
		if (null < 0 || SYS3(dup3, null, fd, O_CLOEXEC) < 0)
			SYS1(close, fd);
	if (null >= 0)
		SYS1(close, null);
}

static void hold_output(struct init *init, struct packet *packet, int target)
{
	init->outputs[target] = NO_DESCRIPTOR;
	for (unsigned int i = 0; i < packet->fd_count; i++)
		if (packet->fds[i] != NO_DESCRIPTOR && packet->fds[i] == init->launch.stdio[target]) {
			init->outputs[target] = packet->fds[i];
			packet->fds[i] = NO_DESCRIPTOR;
		}
}

void release_outputs(const struct init *init)
{
	for (int target = 1; target < STDIO_COUNT; target++)
		if (init->outputs[target] != NO_DESCRIPTOR)
			SYS1(close, init->outputs[target]);
}

int start_command(struct init *init, struct packet *packet)
{
	for (int target = 1; target < STDIO_COUNT; target++)
		hold_output(init, packet, target);
	init->reaper.started_ns = now_ns();
	init->reaper.payload = launch_payload(&init->launch);
	if (!init->reaper.payload)
		return fail(init);
	if (init->driven) {
		/* Said first: in a kernel in user space the payload may kill us at any moment. */
		report_pair(OSBX_TYPE_STARTED, OSBX_COMMAND_PAYLOAD,
			    (unsigned int)init->reaper.payload, 0);
		packet_close_fds(packet);
		/* A terminal that nobody holds open is at its end; a program may open /dev/tty anew. */
		if (init->launch.terminal == TERMINAL_NONE)
			release_stdio();
	}
	return 0;
}
