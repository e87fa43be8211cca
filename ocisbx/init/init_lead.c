/* A further command in a container: a process between process 1 and the command, which all that
 * the command starts comes back to, and which reports over a channel of the command's own.
 *
 * It stays when process 1 would end everything: what a command leaves running goes to process 1.
 */
#include "init.h"

/* Its driver sets the size, then says GO. */
static void wait_for_go(struct init *init)
{
	for (;;) {
		struct packet packet;
		enum received received = hear(init, &packet);

		if (received == RECEIVED_PACKET && packet.header.type == OSBX_TYPE_GO &&
		    !packet.fd_count)
			return;
		if (received == RECEIVED_PACKET && packet.header.type == OSBX_TYPE_RESIZE &&
		    !packet.fd_count)
			relay_resize(init, packet.body.first, packet.body.second);
		else if (received != RECEIVED_NOTHING)
			abandon(init, received == RECEIVED_PACKET ? RECEIVED_MALFORMED : received);
		while (next_signal(init))
			;
		wait_event(init);
	}
}

static void give_terminal(struct init *init, struct packet *packet)
{
	long controller = terminal_open(init->launch.uid);

	if (controller < 0) {
		report_pair(OSBX_TYPE_FAILED, OSBX_COMMAND_PAYLOAD, OSBX_STAGE_TERMINAL,
			    (unsigned int)-controller);
		wait_for_end(init);
		sys_exit(EXIT_FAILED);
	}
	init->launch.terminal = TERMINAL_SESSION;
	if (packet->run.flags & OSBX_GO_STDIN) {
		relay_between(init, (int)controller, packet->fds[0]);
		packet->fds[0] = NO_DESCRIPTOR;
		init->launch.stdio[0] = NO_DESCRIPTOR;
	} else {
		report_terminal((int)controller);
		SYS1(close, controller);
	}
	wait_for_go(init);
}

static void say_taken(struct init *init)
{
	int pid = (int)SYS0(getpid);

	SYS3(write, init->taken[1], &pid, sizeof pid);
	SYS1(close, init->taken[1]);
}

/* Its END wakes us on its own processor (wake_affine), where our end takes as long as all that it
 * still has to do: this process does not preempt it then (sched(7)). */
static void let_driver_go_first(void)
{
	int priority = 0;

	SYS3(sched_setscheduler, 0, SCHED_BATCH, &priority);
}

_Noreturn static void lead(struct init *init, struct packet *packet, const struct run_fds *fds)
{
	int failed;

	/* From here on process 1's socket is out of reach. */
	if (SYS3(dup3, fds->channel, OSBX_REPORT_FD, O_CLOEXEC) < 0 || !report_socket_given())
		sys_exit(EXIT_FAILED);
	watch_driver(init);
	if (!run_prepare(&init->launch, packet, fds->store))
		abandon(init, RECEIVED_MALFORMED);
	if (packet->run.flags & OSBX_GO_TERMINAL)
		give_terminal(init, packet);
	failed = start_command(init, packet);
	if (failed)
		sys_exit(failed);
	watch_payload(init);
	relay_finish(init);
	reap(&init->reaper);
	report_exited(&init->reaper);
	let_driver_go_first();
	release_outputs(init);
	wait_for_end(init);
	sys_exit(exit_code_of(init->reaper.payload_status));
}

/* Whatever was sent to it while it waited is nothing to its command. */
_Noreturn static void take_order(struct init *init)
{
	enum received received = RECEIVED_NOTHING;
	int orders = init->orders;
	struct packet packet;
	struct run_fds fds;

	SYS1(close, init->signals);
	SYS1(close, init->events);
	SYS1(close, init->taken[0]);
	init->orders = 0;
	init->leads = 1;
	init->driven = 1;
	init->reaper = (struct reaper){ .payload = 0 };
	/* The container's own command has its stdio, or the terminal. */
	init->launch.terminal = TERMINAL_NONE;
	for (int target = 0; target < STDIO_COUNT; target++)
		init->launch.stdio[target] = NO_DESCRIPTOR;
	SYS5(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	take_signals(init);
	watch_signals(init);
	while (received == RECEIVED_NOTHING)
		received = packet_receive(orders, 0, &packet);
	/* Not when the command runs: its start may take long, or for ever. */
	say_taken(init);
	SYS1(close, orders);
	while (next_signal(init))
		;
	if (received != RECEIVED_PACKET || packet.header.type != OSBX_TYPE_RUN ||
	    !(packet.run.flags & OSBX_GO_CHANNEL) ||
	    !assign_descriptors(&init->launch, &packet, packet.run.flags, &fds))
		sys_exit(EXIT_FAILED);
	lead(init, &packet, &fds);
}

/* Nobody could be made to take it. */
static void refuse_order(const struct init *init, unsigned int error)
{
	struct launch unused;
	struct packet packet;
	struct run_fds fds;

	if (packet_receive(init->orders, MSG_DONTWAIT, &packet) != RECEIVED_PACKET)
		return;
	if (packet.header.type == OSBX_TYPE_RUN && packet.run.flags & OSBX_GO_CHANNEL &&
	    assign_descriptors(&unused, &packet, packet.run.flags, &fds))
		report_failed(fds.channel, OSBX_STAGE_CLONE, error);
	packet_close_fds(&packet);
}

static int is_ordered(const struct init *init)
{
	char byte;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .vectors = &vector, .vector_count = 1 };

	return SYS3(recvmsg, init->orders, &message, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Whoever has one is the waiting leader no more, and was not lost if it has ended since. */
static void hear_taken(struct init *init)
{
	int pid;

	while (SYS3(read, init->taken[0], &pid, sizeof pid) == sizeof pid) {
		init->reaper.lost_leaders = 0;
		if (pid == init->reaper.leader)
			init->reaper.leader = 0;
	}
}

/* A leader that a command of the container has stopped would take no order. */
static void replace_stopped(struct init *init)
{
	int status;

	if (SYS4(wait4, init->reaper.leader, &status, WNOHANG | WUNTRACED, 0) <= 0)
		return;
	/* It may have taken one first, just now. */
	hear_taken(init);
	if (!init->reaper.leader)
		return;
	if ((status & 0xff) == 0x7f) {
		SYS2(kill, init->reaper.leader, SIGKILL);
	} else {
		init->reaper.leader = 0;
		init->reaper.lost_leaders++;
	}
}

static void watch_orders(const struct init *init)
{
	struct epoll_event wanted = { .events = init->reaper.leader ? 0 : EPOLLIN };

	SYS4(epoll_ctl, init->events, EPOLL_CTL_MOD, init->orders, &wanted);
}

static void make_leader(struct init *init)
{
	struct init leader = *init;
	long made = SYS5(clone, SIGCHLD, 0, 0, 0, 0);

	if (made == 0)
		take_order(&leader);
	if (made > 0)
		init->reaper.leader = (int)made;
	else
		init->reaper.lost_leaders++;
}

int lacks_leader(const struct init *init)
{
	return init->orders && !init->reaper.leader && !init->reaper.lost_leaders;
}

/* One that ends without an order is not made anew ahead of the next: a command may see to it that
 * each ends at once (prlimit(2), as its ids are ours). Where two end so the order is refused. */
void keep_leader(struct init *init, int ahead)
{
	int ordered;

	if (!init->orders)
		return;
	hear_taken(init);
	if (init->reaper.leader)
		replace_stopped(init);
	ordered = !init->reaper.leader && is_ordered(init);
	if (ordered && init->reaper.lost_leaders > 1) {
		refuse_order(init, EAGAIN);
		init->reaper.lost_leaders = 1;
	} else if (ordered || (ahead && lacks_leader(init))) {
		make_leader(init);
	}
	watch_orders(init);
}

void stop_listening(struct init *init)
{
	if (!init->orders)
		return;
	SYS4(epoll_ctl, init->events, EPOLL_CTL_DEL, init->orders, 0);
	SYS4(epoll_ctl, init->events, EPOLL_CTL_DEL, init->taken[0], 0);
	SYS1(close, init->orders);
	init->orders = 0;
}

int listen_there(struct init *init, const struct packet *packet)
{
	struct epoll_event wanted = { .events = EPOLLIN };
	int type = 0;
	unsigned int length = sizeof type;

	if (init->orders || init->leads || packet->fd_count != 1 ||
	    SYS5(getsockopt, packet->fds[0], SOL_SOCKET, SO_TYPE, &type, &length) ||
	    type != SOCK_SEQPACKET || SYS2(pipe2, init->taken, O_CLOEXEC | O_NONBLOCK) ||
	    SYS4(epoll_ctl, init->events, EPOLL_CTL_ADD, init->taken[0], &wanted) < 0 ||
	    SYS4(epoll_ctl, init->events, EPOLL_CTL_ADD, packet->fds[0], &wanted) < 0)
		return 0;
	init->orders = packet->fds[0];
	return 1;
}
