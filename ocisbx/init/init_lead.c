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

_Noreturn static void lead(struct init *init, struct packet *packet, const struct run_fds *fds)
{
	int failed;

	/* From here on process 1's socket is out of reach. */
	if (SYS3(dup3, fds->channel, OSBX_REPORT_FD, O_CLOEXEC) < 0)
		sys_exit(EXIT_FAILED);
	SYS1(close, init->signals);
	SYS1(close, init->events);
	if (init->tie)
		SYS1(close, init->tie);
	init->tie = 0;
	init->leads = 1;
	SYS5(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (!report_socket_given())
		sys_exit(EXIT_FAILED);
	init->driven = 1;
	init->reaper = (struct reaper){ .payload = 0 };
	take_signals(init);
	watch(init);
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
	wait_for_end(init);
	sys_exit(exit_code_of(init->reaper.payload_status));
}

void start_leader(const struct init *init, struct packet *packet)
{
	struct init leader = *init;
	struct run_fds fds;
	long pid;

	/* The container's own command has its stdio, or the terminal. */
	leader.launch.terminal = TERMINAL_NONE;
	for (int target = 0; target < STDIO_COUNT; target++)
		leader.launch.stdio[target] = NO_DESCRIPTOR;

	if (!(packet->run.flags & OSBX_GO_CHANNEL) ||
	    !assign_descriptors(&leader.launch, packet, packet->run.flags, &fds))
		abandon(init, RECEIVED_MALFORMED);
	pid = SYS5(clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		lead(&leader, packet, &fds);
	if (pid < 0)
		report_failed(fds.channel, OSBX_STAGE_CLONE, (unsigned int)-pid);
	packet_close_fds(packet);
}
