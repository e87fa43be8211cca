/* The report socket: packets out and in. Never blocks without a bound. */
#include "init.h"

union control {
	struct cmsghdr header;
	char room[sizeof(struct cmsghdr) + PACKET_FDS * sizeof(int) + 4];
};

/* The longest body is RUN's. */
static union {
	struct osbx_pair pair;
	struct {
		struct osbx_run run;
		char strings[OSBX_RUN_ROOM];
	} run;
} body;

unsigned long now_ns(void)
{
	struct timespec now;

	SYS2(clock_gettime, CLOCK_MONOTONIC, &now);
	return (unsigned long)now.tv_sec * 1000000000UL + (unsigned long)now.tv_nsec;
}

/* A kept bundle that is rerun with a bare runtime has no descriptor 3. A driver that does not read
 * costs the report, after OSBX_PATIENCE_MS, and nothing else. */
int report_socket_given(void)
{
	struct timeval patience = { OSBX_PATIENCE_MS / 1000, OSBX_PATIENCE_MS % 1000 * 1000L };
	int type = 0;
	unsigned int length = sizeof type;

	if (SYS5(getsockopt, OSBX_REPORT_FD, SOL_SOCKET, SO_TYPE, &type, &length) ||
	    type != SOCK_SEQPACKET)
		return 0;
	SYS5(setsockopt, OSBX_REPORT_FD, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	return 1;
}

static void send_packet(int fd, unsigned int type, unsigned int command, const void *content,
			unsigned int length, int descriptor)
{
	struct osbx_header header = {
		.magic = OSBX_MAGIC,
		.version = OSBX_VERSION,
		.type = (unsigned short)type,
		.command = command,
		.length = length,
	};
	struct iovec vectors[2] = { { &header, sizeof header }, { (void *)content, length } };
	struct msghdr message = { .vectors = vectors, .vector_count = 2 };
	union control control = { .header = {
		.length = sizeof control.header + sizeof descriptor,
		.level = SOL_SOCKET,
		.type = SCM_RIGHTS,
	} };

	if (descriptor != NO_DESCRIPTOR) {
		memcpy(control.room + sizeof control.header, &descriptor, sizeof descriptor);
		message.control = &control;
		message.control_length = sizeof control.header + sizeof(long);
	}
	SYS3(sendmsg, fd, &message, MSG_NOSIGNAL);
}

void report_send(unsigned int type, unsigned int command, const void *content, unsigned int length)
{
	send_packet(OSBX_REPORT_FD, type, command, content, length, NO_DESCRIPTOR);
}

void report_pair(unsigned int type, unsigned int command, unsigned int first, unsigned int second)
{
	struct osbx_pair pair = { first, second };

	report_send(type, command, &pair, sizeof pair);
}

void report_terminal(int controller)
{
	send_packet(OSBX_REPORT_FD, OSBX_TYPE_TERMINAL, OSBX_COMMAND_PAYLOAD, 0, 0, controller);
}

void report_failed(int channel, unsigned int stage, unsigned int error)
{
	struct osbx_pair pair = { stage, error };

	send_packet(channel, OSBX_TYPE_FAILED, OSBX_COMMAND_PAYLOAD, &pair, sizeof pair,
		    NO_DESCRIPTOR);
}

void packet_close_fds(struct packet *packet)
{
	for (unsigned int i = 0; i < packet->fd_count; i++)
		if (packet->fds[i] != NO_DESCRIPTOR)
			SYS1(close, packet->fds[i]);
	packet->fd_count = 0;
}

static void take_descriptors(struct packet *packet, const union control *control,
			     unsigned long used)
{
	const int *fds = (const int *)(const void *)(control->room + sizeof control->header);

	if (used < sizeof control->header || control->header.level != SOL_SOCKET ||
	    control->header.type != SCM_RIGHTS)
		return;
	packet->fd_count =
		(unsigned int)((control->header.length - sizeof control->header) / sizeof(int));
	for (unsigned int i = 0; i < packet->fd_count; i++)
		packet->fds[i] = fds[i];
}

/* Whether a body of this length is one of this type; RUN's strings are checked where they are used. */
static int fits(unsigned int type, unsigned long length)
{
	if (type == OSBX_TYPE_RUN)
		return length >= sizeof body.run.run &&
		       length - sizeof body.run.run ==
			       (body.run.run.flags & OSBX_GO_STORED ? 0 : body.run.run.size);
	return length == (type == OSBX_TYPE_END || type == OSBX_TYPE_LISTEN ? 0 : sizeof body.pair);
}

/* Fills the packet with one message. Whatever does not fit, is of another version or contradicts
 * itself is malformed; its descriptors are closed. Descriptors beyond PACKET_FDS are closed by the
 * kernel, which then says MSG_CTRUNC. */
enum received packet_receive(int fd, int flags, struct packet *packet)
{
	union control control;
	struct iovec vectors[2] = { { &packet->header, sizeof packet->header },
				    { &body, sizeof body } };
	struct msghdr message = { .vectors = vectors, .vector_count = 2,
				  .control = &control, .control_length = sizeof control };
	long got = SYS3(recvmsg, fd, &message, flags | MSG_CMSG_CLOEXEC);

	packet->fd_count = 0;
	if (got == -EAGAIN || got == -EINTR)
		return RECEIVED_NOTHING;
	if (got <= 0)
		return RECEIVED_HANGUP;
	take_descriptors(packet, &control, message.control_length);
	if ((message.flags & (MSG_TRUNC | MSG_CTRUNC)) ||
	    (unsigned long)got < sizeof packet->header || packet->header.magic != OSBX_MAGIC ||
	    packet->header.version != OSBX_VERSION ||
	    packet->header.length != (unsigned long)got - sizeof packet->header ||
	    !fits(packet->header.type, packet->header.length)) {
		packet_close_fds(packet);
		return RECEIVED_MALFORMED;
	}
	packet->body = body.pair;
	packet->run = body.run.run;
	packet->strings = body.run.strings;
	return RECEIVED_PACKET;
}

enum received report_receive(struct packet *packet)
{
	return packet_receive(OSBX_REPORT_FD, MSG_DONTWAIT, packet);
}
