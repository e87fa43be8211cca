/* What process 1 and a leader have in common: signals, packets and waiting, never without a bound
 * once the payload has ended.
 */
#include "init.h"
#include "text.h"

_Noreturn void refuse(const char *why)
{
	text_complain(PROGRAM, why, 0);
	sys_exit(EXIT_FAILED);
}

/* The end of process 1 is the end of its namespace: the kernel kills all that is left there. */
_Noreturn void abandon(const struct init *init, enum received reason)
{
	if (init->leads) {
		struct reaper gone = { .payload = 0 };
		unsigned long end_ns = patience_end();

		while (signal_descendants(SIGKILL) && now_ns() < end_ns)
			reap(&gone);
	}
	/* What it says is shown on a command's own terminal: nobody may read there any more, which would
	 * hold up who writes, for good where this process is the reader. */
	if (init->leads && init->launch.terminal != TERMINAL_NONE)
		sys_exit(EXIT_FAILED);
	refuse(reason == RECEIVED_MALFORMED ? "malformed packet" : "the driver is gone");
}

/* Blocked signals are queued for process 1 although it has no handler (signal(7), "init"), and
 * signalfd hands them out; the defaults are set for the payload's sake, which inherits them. */
void take_signals(struct init *init)
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
	init->signals = (int)fd;
}

/* epoll, not poll: poll(2) fails where it is given more than RLIMIT_NOFILE descriptors, and the
 * payload, whose ids are ours, may set our limits (prlimit(2)). */
void watch_signals(struct init *init)
{
	struct epoll_event wanted = { .events = EPOLLIN };
	long fd = SYS1(epoll_create1, EPOLL_CLOEXEC);

	if (fd < 0 || SYS4(epoll_ctl, fd, EPOLL_CTL_ADD, init->signals, &wanted) < 0)
		refuse("epoll failed");
	init->events = (int)fd;
}

void watch_driver(const struct init *init)
{
	struct epoll_event wanted = { .events = EPOLLIN };

	if (SYS4(epoll_ctl, init->events, EPOLL_CTL_ADD, OSBX_REPORT_FD, &wanted) < 0)
		refuse("epoll failed");
}

int wait_until(const struct init *init, unsigned long end_ns)
{
	struct epoll_event event;
	unsigned long now = now_ns();

	if (now >= end_ns)
		return 0;
	SYS5(epoll_pwait, init->events, &event, 1, (end_ns - now) / 1000000 + 1, 0);
	return 1;
}

int wait_event_for(const struct init *init, int most_ms)
{
	struct epoll_event event;

	return SYS5(epoll_pwait, init->events, &event, 1, most_ms, 0) != 0;
}

void wait_event(const struct init *init)
{
	wait_event_for(init, -1);
}

unsigned long patience_end(void)
{
	return now_ns() + OSBX_PATIENCE_MS * 1000000UL;
}

int next_signal_of(const struct init *init, unsigned int *sender)
{
	struct signalfd_info info;

	if (SYS3(read, init->signals, &info, sizeof info) != sizeof info)
		return 0;
	*sender = info.sender;
	return (int)info.signo;
}

int next_signal(const struct init *init)
{
	unsigned int sender;

	return next_signal_of(init, &sender);
}

enum received hear(struct init *init, struct packet *packet)
{
	enum received received = report_receive(packet);

	if (received != RECEIVED_PACKET || packet->header.type != OSBX_TYPE_LISTEN)
		return received;
	return listen_there(init, packet) ? RECEIVED_NOTHING : RECEIVED_MALFORMED;
}

static void signal_all(const struct init *init, int signo)
{
	if (init->leads)
		signal_descendants(signo);
	else
		SYS2(kill, -1, signo);
}

/* Reaps first: a signal to a zombie succeeds, and would count as what ended it. */
static void send_signal(struct init *init, const struct packet *packet)
{
	unsigned int signo = packet->body.first, target = packet->body.second;
	int payload = init->reaper.payload;

	if (packet->fd_count || !signo || signo > SIGNAL_MAX || target > OSBX_TARGET_ALL)
		abandon(init, RECEIVED_MALFORMED);
	reap(&init->reaper);
	if (init->reaper.payload_ended)
		return;
	init->reaper.signals++;
	if (target == OSBX_TARGET_ALL)
		signal_all(init, (int)signo);
	else
		SYS2(kill, target == OSBX_TARGET_GROUP ? -payload : payload, signo);
}

static void obey(struct init *init, struct packet *packet)
{
	if (packet->header.type == OSBX_TYPE_SIGNAL)
		send_signal(init, packet);
	else if (packet->header.type == OSBX_TYPE_RESIZE && init->leads && !packet->fd_count)
		relay_resize(init, packet->body.first, packet->body.second);
	else
		abandon(init, RECEIVED_MALFORMED);
}

void watch_payload(struct init *init)
{
	while (!init->reaper.payload_ended) {
		struct packet packet;
		enum received received = RECEIVED_NOTHING;
		int signo;

		relay_pass(init);
		keep_leader(init, 0);
		wait_event(init);
		/* First what the driver waits for: each look costs tens of microseconds in a kernel in
		 * user space that was idle. */
		reap(&init->reaper);
		if (init->reaper.payload_ended)
			return;
		if (init->driven)
			received = hear(init, &packet);
		if (received == RECEIVED_PACKET)
			obey(init, &packet);
		else if (received != RECEIVED_NOTHING)
			abandon(init, received);
		signo = next_signal(init);
		if (signo == SIGCHLD)
			reap(&init->reaper);
		else if (signo)
			SYS2(kill, init->reaper.payload, signo);
	}
}

void end_others(struct init *init)
{
	unsigned long end_ns;

	stop_listening(init);
	/* Also whom a runtime has sent in (exec), who is nobody's child here. */
	SYS2(kill, -1, SIGKILL);
	/* Orphans are our children: most payloads leave none. */
	if (!reap(&init->reaper))
		return;
	if (init->driven)
		SYS4(epoll_ctl, init->events, EPOLL_CTL_DEL, OSBX_REPORT_FD, 0);
	end_ns = patience_end();
	while (reap(&init->reaper) && wait_until(init, end_ns))
		next_signal(init);
}

/* Until END, the driver's hang-up or OSBX_PATIENCE_MS: it reads the cgroup's counters meanwhile. A
 * leader whose driver hangs up instead kills what the command has left. */
void wait_for_end(struct init *init)
{
	struct epoll_event wanted = { .events = EPOLLIN };
	unsigned long end_ns = patience_end();
	struct packet packet;
	enum received received;

	if (!init->driven || init->ends)
		return;
	stop_listening(init);
	SYS4(epoll_ctl, init->events, EPOLL_CTL_ADD, OSBX_REPORT_FD, &wanted);
	do {
		next_signal(init);
		received = report_receive(&packet);
		packet_close_fds(&packet);
		if (received == RECEIVED_PACKET && packet.header.type == OSBX_TYPE_END)
			return;
	} while ((received == RECEIVED_PACKET || received == RECEIVED_NOTHING) &&
		 wait_until(init, end_ns));
	if (init->leads && received == RECEIVED_HANGUP)
		abandon(init, received);
}
