/* ocisbx-init: process 1 of every container. It starts the payload as its child, forwards signals,
 * reaps orphans and reports the end over descriptor 3; see ocisbx-init(7).
 *
 * PR_SET_DUMPABLE 0 comes first: from then on no process of the container without CAP_SYS_PTRACE
 * may trace it, read its memory, list its descriptors or take one of them.
 */
#include "init.h"
#include "start.h"
#include "text.h"

#define PROGRAM "ocisbx-init"
#define ENDING_SIGNALS (SIGBIT(SIGHUP) | SIGBIT(SIGINT) | SIGBIT(SIGQUIT) | SIGBIT(SIGTERM))

struct init {
	int driven;
	int signals;
	int events;
	struct launch launch;
	struct reaper reaper;
};

_Noreturn static void refuse(const char *why)
{
	text_complain(PROGRAM, why, 0);
	sys_exit(EXIT_FAILED);
}

/* The end of process 1 is the end of its namespace: the kernel kills all that is left there. */
_Noreturn static void abandon(enum received reason)
{
	refuse(reason == RECEIVED_MALFORMED ? "malformed packet" : "the driver is gone");
}

static char **parse_arguments(int argc, char **argv)
{
	if (argc < 3 || argv[1][0] != '-' || argv[1][1] != '-' || argv[1][2])
		refuse("usage: ocisbx-init -- COMMAND [ARG...]");
	return argv + 2;
}

/* Blocked signals are queued for process 1 although it has no handler (signal(7), "init"), and
 * signalfd hands them out; the defaults are set for the payload's sake, which inherits them. */
static int take_signals(void)
{
	struct sigaction action = { .handler = 0 };
	sigset all = ~0UL;
	long fd;

	SYS4(rt_sigprocmask, SIG_SETMASK, &all, 0, sizeof all);
	for (int signo = 1; signo <= SIGNAL_MAX; signo++)
		SYS4(rt_sigaction, signo, &action, 0, sizeof all);
	fd = SYS4(signalfd4, -1, &all, sizeof all, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0) {
		text_complain(PROGRAM, "signalfd", (int)-fd);
		sys_exit(EXIT_FAILED);
	}
	return (int)fd;
}

/* A closed 0, 1 or 2 would let a received descriptor land there and be overwritten. */
static void fill_stdio(void)
{
	for (int fd = 0; fd < STDIO_COUNT; fd++)
		if (SYS2(fcntl, fd, F_GETFD) < 0)
			SYS4(openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
}

/* epoll, not poll: poll(2) fails where it is given more than RLIMIT_NOFILE descriptors, and the
 * payload, whose ids are ours, may set our limits (prlimit(2)). */
static int watch(const struct init *init)
{
	struct epoll_event wanted = { .events = EPOLLIN };
	long fd = SYS1(epoll_create1, EPOLL_CLOEXEC);

	if (fd < 0 || SYS4(epoll_ctl, fd, EPOLL_CTL_ADD, init->signals, &wanted) < 0 ||
	    (init->driven && SYS4(epoll_ctl, fd, EPOLL_CTL_ADD, OSBX_REPORT_FD, &wanted) < 0))
		refuse("epoll failed");
	return (int)fd;
}

/* Waits for a signal or a packet until `end_ns`; returns 0 when that has come. */
static int wait_until(const struct init *init, unsigned long end_ns)
{
	struct epoll_event event;
	unsigned long now = now_ns();

	if (now >= end_ns)
		return 0;
	SYS5(epoll_pwait, init->events, &event, 1, (end_ns - now) / 1000000 + 1, 0);
	return 1;
}

static void wait_event(const struct init *init)
{
	struct epoll_event event;

	SYS5(epoll_pwait, init->events, &event, 1, -1, 0);
}

static unsigned long patience_end(void)
{
	return now_ns() + OSBX_PATIENCE_MS * 1000000UL;
}

/* One signal of the queue, or 0. Not more at once: a flood must not keep the driver waiting. */
static int next_signal(const struct init *init)
{
	struct signalfd_info info;

	if (SYS3(read, init->signals, &info, sizeof info) != sizeof info)
		return 0;
	return (int)info.signo;
}

/* Reaps first: a signal to a zombie succeeds, and would count as what ended it. */
static void send_signal(struct init *init, const struct packet *packet)
{
	unsigned int signo = packet->body.first, target = packet->body.second;
	int payload = init->reaper.payload;

	if (packet->fd_count || !signo || signo > SIGNAL_MAX || target > OSBX_TARGET_ALL)
		abandon(RECEIVED_MALFORMED);
	reap(&init->reaper);
	if (init->reaper.payload_ended)
		return;
	init->reaper.signals++;
	if (target == OSBX_TARGET_ALL)
		SYS2(kill, -1, signo);
	else
		SYS2(kill, target == OSBX_TARGET_GROUP ? -payload : payload, signo);
}

static void assign_stdio(struct launch *launch, const struct packet *packet)
{
	static const unsigned int flag_of[STDIO_COUNT] = { OSBX_GO_STDIN, OSBX_GO_STDOUT,
							   OSBX_GO_STDERR };
	unsigned int flags = packet->body.first, next = 0;

	if (flags & ~(OSBX_GO_STDIN | OSBX_GO_STDOUT | OSBX_GO_STDERR | OSBX_GO_COMBINE))
		abandon(RECEIVED_MALFORMED);
	for (int target = 0; target < STDIO_COUNT; target++) {
		if (!(flags & flag_of[target]))
			continue;
		if (next == packet->fd_count)
			abandon(RECEIVED_MALFORMED);
		launch->stdio[target] = packet->fds[next++];
	}
	if (next != packet->fd_count)
		abandon(RECEIVED_MALFORMED);
	launch->null_stdin = !(flags & OSBX_GO_STDIN);
	launch->combine = !!(flags & OSBX_GO_COMBINE);
}

/* A pool member may wait here for hours; an operator's SIGTERM ends it. */
static void wait_for_go(const struct init *init, struct packet *go)
{
	for (;;) {
		enum received received = report_receive(go);
		int signo;

		if (received == RECEIVED_PACKET) {
			if (go->header.type == OSBX_TYPE_GO)
				return;
			if (go->header.type != OSBX_TYPE_SIGNAL)
				abandon(RECEIVED_MALFORMED);
			continue;
		}
		if (received != RECEIVED_NOTHING)
			abandon(received);
		signo = next_signal(init);
		if (signo && SIGBIT(signo) & ENDING_SIGNALS)
			sys_exit(128 + signo);
		if (!signo)
			wait_event(init);
	}
}

static void watch_payload(struct init *init)
{
	while (!init->reaper.payload_ended) {
		struct packet packet;
		enum received received = RECEIVED_NOTHING;
		int signo;

		wait_event(init);
		if (init->driven)
			received = report_receive(&packet);
		if (received == RECEIVED_PACKET && packet.header.type == OSBX_TYPE_SIGNAL)
			send_signal(init, &packet);
		else if (received != RECEIVED_NOTHING)
			abandon(received == RECEIVED_PACKET ? RECEIVED_MALFORMED : received);
		signo = next_signal(init);
		if (signo == SIGCHLD)
			reap(&init->reaper);
		else if (signo)
			SYS2(kill, init->reaper.payload, signo);
	}
}

/* Kills and reaps what the payload left. Bounded: a process in uninterruptible sleep must not
 * hold the report back. */
static void end_others(struct init *init)
{
	unsigned long end_ns = patience_end();

	if (init->driven)
		SYS4(epoll_ctl, init->events, EPOLL_CTL_DEL, OSBX_REPORT_FD, 0);
	SYS2(kill, -1, SIGKILL);
	while (reap(&init->reaper) && wait_until(init, end_ns))
		next_signal(init);
}

/* Until END, the driver's hang-up or OSBX_PATIENCE_MS: it reads the cgroup's counters meanwhile. */
static void wait_for_end(struct init *init)
{
	struct epoll_event wanted = { .events = EPOLLIN };
	unsigned long end_ns = patience_end();
	struct packet packet;
	enum received received;

	if (!init->driven)
		return;
	SYS4(epoll_ctl, init->events, EPOLL_CTL_ADD, OSBX_REPORT_FD, &wanted);
	do {
		next_signal(init);
		received = report_receive(&packet);
		packet_close_fds(&packet);
		if (received == RECEIVED_PACKET && packet.header.type == OSBX_TYPE_END)
			return;
	} while ((received == RECEIVED_PACKET || received == RECEIVED_NOTHING) &&
		 wait_until(init, end_ns));
}

/* execve(2): there is nothing by this name. */
static int is_nothing(unsigned int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG;
}

static int fail(struct init *init)
{
	unsigned int stage = init->launch.stage, error = init->launch.error;

	if (init->driven)
		report_pair(OSBX_TYPE_FAILED, OSBX_COMMAND_PAYLOAD, stage, error);
	else
		text_complain(PROGRAM, init->launch.argv[0], (int)error);
	wait_for_end(init);
	if (stage != OSBX_STAGE_EXEC)
		return EXIT_FAILED;
	return is_nothing(error) ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* The payload's stdio: the driver's descriptors, or what the runtime gave. A terminal moves from
 * our session into the payload's, which needs it for job control. */
static void prepare_stdio(struct init *init, struct packet *go)
{
	if (init->driven) {
		wait_for_go(init, go);
		assign_stdio(&init->launch, go);
	} else if (SYS3(ioctl, 0, TIOCNOTTY, 0) == 0) {
		init->launch.own_terminal = 1;
		while (next_signal(init))
			;
	}
}

int program(int argc, char **argv, char **envp)
{
	struct init init = {
		.launch = { .envp = envp,
			    .stdio = { NO_DESCRIPTOR, NO_DESCRIPTOR, NO_DESCRIPTOR } },
	};
	struct packet go = { .fd_count = 0 };

	SYS5(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	init.launch.argv = parse_arguments(argc, argv);
	if (SYS0(getpid) != 1)
		refuse("must be process 1 of a container");
	init.driven = report_socket_given();
	fill_stdio();
	sys_cloexec_from(STDIO_COUNT);
	init.signals = take_signals();
	init.events = watch(&init);
	if (init.driven)
		report_pair(OSBX_TYPE_READY, OSBX_COMMAND_CONTAINER, OSBX_FEATURES, 0);
	prepare_stdio(&init, &go);

	init.reaper.started_ns = now_ns();
	init.reaper.payload = launch_payload(&init.launch);
	if (!init.reaper.payload)
		return fail(&init);
	if (init.driven) {
		packet_close_fds(&go);
		for (int fd = 0; fd < STDIO_COUNT; fd++)
			SYS1(close, fd);
		report_pair(OSBX_TYPE_STARTED, OSBX_COMMAND_PAYLOAD,
			    (unsigned int)init.reaper.payload, 0);
	}
	watch_payload(&init);
	end_others(&init);
	if (init.driven)
		report_exited(&init.reaper);
	wait_for_end(&init);
	return exit_code_of(init.reaper.payload_status);
}
