/* ocisbx-init: process 1 of every container. It starts the payload as its child, forwards signals,
 * reaps orphans and reports the end over descriptor 3; see ocisbx-init(7).
 *
 * PR_SET_DUMPABLE 0 comes first: from then on no process of the container without CAP_SYS_PTRACE
 * may trace it, read its memory, list its descriptors or take one of them.
 */
#include "init.h"
#include "start.h"
#include "text.h"

#define SHORT_MS 3 /* more than `true` takes */
#define ENDING_SIGNALS (SIGBIT(SIGHUP) | SIGBIT(SIGINT) | SIGBIT(SIGQUIT) | SIGBIT(SIGTERM))

static int is_option(const char *argument, char letter)
{
	return argument && argument[0] == '-' && argument[1] == letter && !argument[2];
}

static void parse_arguments(struct launch *launch, int argc, char **argv)
{
	static const char usage[] = "usage: ocisbx-init [-w /ABS/PATH]... -- [COMMAND [ARG...]]";
	char **next = argv + 1;

	if (argc < 2)
		refuse(usage);
	for (; is_option(*next, 'w'); next += 2)
		if (!next[1] || next[1][0] != '/')
			refuse(usage);
	if (!is_option(*next, '-'))
		refuse(usage);
	launch->rules = argv + 1;
	launch->argv = next + 1;
}

/* A closed 0, 1 or 2 would let a received descriptor land there and be overwritten. */
static void fill_stdio(void)
{
	for (int fd = 0; fd < STDIO_COUNT; fd++)
		if (SYS2(fcntl, fd, F_GETFD) < 0)
			SYS4(openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
}

/* Without one, no payload: the driver waits for it on the other end. */
static void take_terminal(struct init *init)
{
	long result = terminal_release(init);

	if (result == 0)
		return;
	report_pair(OSBX_TYPE_FAILED, OSBX_COMMAND_PAYLOAD, OSBX_STAGE_TERMINAL,
		    (unsigned int)-result);
	wait_for_end(init);
	sys_exit(EXIT_FAILED);
}

/* GO or RUN: what this container is for. Returns 0 for what is something else. */
static int is_order(struct init *init, struct packet *packet)
{
	struct launch *launch = &init->launch;
	struct run_fds fds;
	unsigned int flags;
	int runs = packet->header.type == OSBX_TYPE_RUN;

	if (packet->header.type == OSBX_TYPE_SIGNAL)
		return 0;
	if (packet->header.type != (*launch->argv ? OSBX_TYPE_GO : OSBX_TYPE_RUN))
		abandon(init, RECEIVED_MALFORMED);
	flags = runs ? packet->run.flags : packet->body.first;
	if (flags & ~(OSBX_GO_STDIN | OSBX_GO_STDOUT | OSBX_GO_STDERR | OSBX_GO_COMBINE |
		      (runs ? OSBX_GO_STORED : OSBX_GO_TERMINAL | OSBX_GO_ENDS)) ||
	    !assign_descriptors(launch, packet, flags, &fds) ||
	    (runs && !run_prepare(launch, packet, fds.store)))
		abandon(init, RECEIVED_MALFORMED);
	init->ends = !!(flags & OSBX_GO_ENDS);
	if (flags & OSBX_GO_TERMINAL)
		take_terminal(init);
	return 1;
}

/* A pool member or a session may wait here for hours; an operator's SIGTERM ends it, a command's
 * own does not. Who takes a session's next order is not made while a short command runs: it would
 * have the processor that the command needs. */
static void wait_for_order(struct init *init, struct packet *packet)
{
	int idle = 1;

	for (;;) {
		enum received received = hear(init, packet);
		unsigned int sender;
		int signo;

		if (received != RECEIVED_PACKET)
			keep_leader(init, idle && !*init->launch.argv);
		if (received == RECEIVED_PACKET) {
			if (is_order(init, packet))
				return;
			continue;
		}
		if (received != RECEIVED_NOTHING)
			abandon(init, received);
		signo = next_signal_of(init, &sender);
		if (signo == SIGCHLD) {
			reap(&init->reaper);
			idle = 1;
		} else if (signo && !sender && SIGBIT(signo) & ENDING_SIGNALS) {
			sys_exit(128 + signo);
		}
		if (!signo)
			idle = !wait_event_for(init, !*init->launch.argv && lacks_leader(init) ? SHORT_MS : -1);
	}
}

/* The payload's stdio: the driver's descriptors, or what the runtime gave. A terminal moves from
 * our session into the payload's, which needs it for job control. */
static void prepare_stdio(struct init *init, struct packet *order)
{
	if (init->driven) {
		wait_for_order(init, order);
	} else {
		terminal_release(init);
	}
}

/* Commands of one container are one domain: they signal each other. */
static void confine_all(struct launch *launch)
{
	static char *none[] = { "--", 0 };
	long result = launch->rules[0][1] == 'w' ? landlock_confine(launch->rules) : 0;

	if (result < 0) {
		text_complain(PROGRAM, "landlock", (int)-result);
		sys_exit(EXIT_FAILED);
	}
	launch->rules = none;
}

int program(int argc, char **argv, char **envp)
{
	struct init init = {
		.launch = { .envp = envp, .uid = OSBX_OWN_ID, .gid = OSBX_OWN_ID,
			    .stdio = { NO_DESCRIPTOR, NO_DESCRIPTOR, NO_DESCRIPTOR } },
	};
	struct packet order = { .fd_count = 0 };
	int failed;

	if (argc == 2 && text_equal(argv[1], "--self-test"))
		return self_test();
	SYS5(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	parse_arguments(&init.launch, argc, argv);
	if (SYS0(getpid) != 1)
		refuse("must be process 1 of a container");
	init.driven = report_socket_given();
	if (!init.driven && !*init.launch.argv)
		refuse("a command or a driver is needed");
	fill_stdio();
	sys_cloexec_from(STDIO_COUNT);
	take_signals(&init);
	watch_signals(&init);
	if (init.driven)
		watch_driver(&init);
	if (!*init.launch.argv)
		confine_all(&init.launch);
	if (init.driven)
		report_pair(OSBX_TYPE_READY, OSBX_COMMAND_CONTAINER, OSBX_FEATURES, 0);
	prepare_stdio(&init, &order);
	failed = start_command(&init, &order);
	if (failed)
		return failed;
	watch_payload(&init);
	end_others(&init);
	if (init.driven)
		report_exited(&init.reaper);
	release_outputs(&init);
	wait_for_end(&init);
	return exit_code_of(init.reaper.payload_status);
}
