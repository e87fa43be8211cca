/* A command's terminal whose controlling end does not leave the container, where the kernel is one in
 * user space: its leader passes on, byte by byte, what goes through a socket of the driver's.
 */
#include "init.h"

static struct {
	int controller;
	int socket;
	/* the driver says nothing more */
	int silent;
	unsigned int typed, taken;
	unsigned int shown, sent;
	char typing[4096];
	char showing[16384];
} relay;

/* Without it: the descriptor is not watched. */
static void watch_for(const struct init *init, int fd, unsigned int events)
{
	struct epoll_event wanted = { .events = events };

	if (SYS4(epoll_ctl, init->events, events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL, fd, &wanted) == -ENOENT &&
	    events)
		SYS4(epoll_ctl, init->events, EPOLL_CTL_ADD, fd, &wanted);
}

static long transfer(int sends, char *bytes, unsigned long length)
{
	struct iovec vector = { bytes, length };
	struct msghdr message = { .vectors = &vector, .vector_count = 1 };

	return sends ? SYS3(sendmsg, relay.socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) :
		       SYS3(recvmsg, relay.socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
}

static void pass_typed(void)
{
	long done;

	if (relay.taken == relay.typed && !relay.silent) {
		done = transfer(0, relay.typing, sizeof relay.typing);
		relay.silent = done != -EAGAIN && done <= 0;
		relay.taken = 0;
		relay.typed = done > 0 ? (unsigned int)done : 0;
	}
	if (relay.taken == relay.typed)
		return;
	done = SYS3(write, relay.controller, relay.typing + relay.taken,
		    relay.typed - relay.taken);
	if (done > 0)
		relay.taken += (unsigned int)done;
	else if (done != -EAGAIN)
		relay.taken = relay.typed;
}

static void pass_shown(void)
{
	long done;

	if (relay.sent == relay.shown) {
		done = SYS3(read, relay.controller, relay.showing, sizeof relay.showing);
		relay.sent = 0;
		relay.shown = done > 0 ? (unsigned int)done : 0;
	}
	if (relay.sent == relay.shown)
		return;
	done = transfer(1, relay.showing + relay.sent, relay.shown - relay.sent);
	if (done > 0)
		relay.sent += (unsigned int)done;
	else if (done != -EAGAIN)
		relay.sent = relay.shown;
}

int relay_pass(const struct init *init)
{
	unsigned int waits_shown, waits_typed;

	if (!init->relays)
		return 0;
	pass_typed();
	pass_shown();
	waits_shown = relay.sent < relay.shown;
	waits_typed = relay.taken < relay.typed;
	watch_for(init, relay.controller,
		  (waits_shown ? 0 : EPOLLIN) | (waits_typed ? EPOLLOUT : 0));
	watch_for(init, relay.socket,
		  (waits_typed || relay.silent ? 0 : EPOLLIN) | (waits_shown ? EPOLLOUT : 0));
	return relay.shown != 0;
}

void relay_finish(const struct init *init)
{
	unsigned long end_ns = patience_end();

	while (relay_pass(init) && now_ns() < end_ns)
		if (relay.sent < relay.shown)
			wait_until(init, end_ns);
}

/* A kernel in user space may tell nobody of a new size; whoever does not care for the signal ignores it. */
void relay_resize(const struct init *init, unsigned int rows, unsigned int columns)
{
	unsigned short size[4] = { (unsigned short)rows, (unsigned short)columns, 0, 0 };

	if (!init->relays)
		return;
	SYS3(ioctl, relay.controller, TIOCSWINSZ, size);
	if (init->reaper.payload)
		signal_descendants(SIGWINCH);
}

void relay_between(struct init *init, int controller, int socket)
{
	relay.controller = controller;
	relay.socket = socket;
	init->relays = 1;
}
