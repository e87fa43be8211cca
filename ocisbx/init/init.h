/* What the init's files share. */
#ifndef OSBX_INIT_H
#define OSBX_INIT_H

#include "protocol.h"
#include "sys.h"

#define PROGRAM "ocisbx-init"

#define EXIT_NOT_FOUND 127
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_FAILED 125

#define STDIO_COUNT 3
/* stdio, a command's strings, its channel */
#define PACKET_FDS (STDIO_COUNT + 2)
#define NO_DESCRIPTOR (-1)

typedef unsigned long sigset;
#define SIGBIT(signo) (1UL << ((signo) - 1))

/* One packet of the driver: `fds` are the descriptors that came with it, in order; `strings` are
 * RUN's, until the next packet. */
struct packet {
	struct osbx_header header;
	struct osbx_pair body;
	struct osbx_run run;
	const char *strings;
	unsigned int fd_count;
	int fds[PACKET_FDS];
};

/* Whose the terminal becomes that the runtime gave: nobody's; the payload's, which leads a session of
 * its own; the payload's in our session, where the kernel does not let a session give it up. */
enum terminal { TERMINAL_NONE, TERMINAL_SESSION, TERMINAL_GROUP };

enum received { RECEIVED_PACKET, RECEIVED_NOTHING, RECEIVED_HANGUP, RECEIVED_MALFORMED };

struct init;

struct launch {
	char **argv;
	/* pairs of "-w" and a path, then "--" */
	char **rules;
	char **envp;
	/* 0: the init's own */
	const char *directory;
	unsigned int uid;
	unsigned int gid;
	/* what becomes 0, 1 and 2; NO_DESCRIPTOR leaves the init's own */
	int stdio[STDIO_COUNT];
	int null_stdin;
	int combine;
	enum terminal terminal;
	/* written by the child, which shares our memory until its exec */
	volatile unsigned int stage;
	volatile unsigned int error;
};

/* init_exec.c: clone(2) onto a stack that all children share, so `flags` hold CLONE_VFORK;
 * `function` must not return. */
long clone_child(unsigned long flags, void (*function)(void *), void *argument);
/* Returns the payload's pid, or 0 with `stage` and `error` set. */
int launch_payload(struct launch *launch);

/* init_terminal.c: takes the terminal from our session, for the payload's; 0, or a negative errno. */
long terminal_release(struct init *init);
/* Takes it back, for a payload in our session. */
long terminal_retake(struct launch *launch);
/* In the payload's process: a session, or a process group, of its own, which has the terminal. */
long terminal_acquire(const struct launch *launch);

/* init_landlock.c: the kernel's ABI, or a negative errno. */
long landlock_abi(void);
/* Confines the calling thread to writing beneath the paths of `rules`, as far as the kernel can;
 * returns 0 (also where it has no Landlock) or a negative errno. */
long landlock_confine(char **rules);

/* A terminal of this container, of user `uid`'s, which becomes our 0, 1 and 2; its controlling end, or a
 * negative errno. */
long terminal_open(unsigned int uid);

/* init_selftest.c: returns the exit code. */
int self_test(void);

/* init_report.c */
unsigned long now_ns(void);
int report_socket_given(void);
void report_send(unsigned int type, unsigned int command, const void *body, unsigned int length);
void report_pair(unsigned int type, unsigned int command, unsigned int first, unsigned int second);
/* A command's terminal, to who drives it. */
void report_terminal(int controller);
/* In place of a leader that could not be made. */
void report_failed(int channel, unsigned int stage, unsigned int error);
enum received packet_receive(int fd, int flags, struct packet *packet);
/* The driver's next packet; never waits. */
enum received report_receive(struct packet *packet);
void packet_close_fds(struct packet *packet);

/* init_reap.c */
struct reaper {
	int payload;
	int payload_ended;
	int payload_status;
	/* of process 1: the leader that waits for an order; 0: none does */
	int leader;
	/* how many have ended, one after the other, without saying that they have one */
	int lost_leaders;
	unsigned int signals;
	unsigned long started_ns;
	unsigned long ended_ns;
	struct osbx_usage payload_usage;
	struct osbx_usage total_usage;
};

/* Reaps what has ended, up to the payload; returns 0 when no children are left. */
int reap(struct reaper *reaper);
void report_exited(const struct reaper *reaper);
int exit_code_of(int wait_status);

/* One process that starts a command and reports its end: process 1, or the leader of a further
 * command. */
struct init {
	int driven;
	/* nobody looks at the container when its payload's end is reported */
	int ends;
	/* not process 1: only what descends from this process is its own to end */
	int leads;
	/* the command's terminal, to its driver */
	int relays;
	int signals;
	int events;
	/* where further commands are ordered, and the pipe by which a leader says that it has one; 0:
	 * nowhere (yet) */
	int orders;
	int taken[2];
	/* 1 and 2 of the command, held open until its end is reported; NO_DESCRIPTOR: none */
	int outputs[STDIO_COUNT];
	struct launch launch;
	struct reaper reaper;
};

/* init_loop.c */
_Noreturn void refuse(const char *why);
/* The driver is gone, or not to be trusted: ends all that this process answers for. */
_Noreturn void abandon(const struct init *init, enum received reason);
void take_signals(struct init *init);
void watch_signals(struct init *init);
void watch_driver(const struct init *init);
void wait_event(const struct init *init);
/* At most so long, -1: without an end; returns 0 where none came. */
int wait_event_for(const struct init *init, int most_ms);
/* The driver's next packet, but for LISTEN, which is dealt with. */
enum received hear(struct init *init, struct packet *packet);
/* Waits for an event until `end_ns`; returns 0 when that has come. */
int wait_until(const struct init *init, unsigned long end_ns);
unsigned long patience_end(void);
/* One signal of the queue, or 0. Not more at once: a flood must not keep the driver waiting. */
int next_signal(const struct init *init);
/* `sender`: its pid, 0 for one outside of the container. */
int next_signal_of(const struct init *init, unsigned int *sender);
void watch_payload(struct init *init);
/* Kills and reaps what is left. Bounded: a process in uninterruptible sleep must not hold the
 * report back. */
void end_others(struct init *init);
void wait_for_end(struct init *init);

/* init_run.c: the descriptors of GO or RUN, by its flags; NO_DESCRIPTOR: none came. Returns 0 when
 * they do not fit them. */
struct run_fds {
	int store;
	int channel;
};
int assign_descriptors(struct launch *launch, const struct packet *packet, unsigned int flags,
		       struct run_fds *fds);
/* What RUN's strings say becomes the launch's; 0: they do not fit their numbers. */
int run_prepare(struct launch *launch, const struct packet *packet, int store);
/* After the report, so that it wakes the driver once, and not the end of each pipe before. */
void release_outputs(const struct init *init);
/* Starts the command and reports how that went; returns 0, or the exit code where it failed. */
int start_command(struct init *init, struct packet *packet);

/* start.h */
void *memcpy(void *to, const void *from, unsigned long count);

/* init_lead.c: further commands beside the container's own, each in a process that leads it. From
 * now on they are ordered where the packet's descriptor leads; returns 0 for a packet that is
 * malformed. */
int listen_there(struct init *init, const struct packet *packet);
/* Sees to it that orders are taken; `ahead`: by a leader that is there before the order. */
void keep_leader(struct init *init, int ahead);
/* Whether one has to be made, some time. */
int lacks_leader(const struct init *init);
/* No more orders: nobody is left to take them. */
void stop_listening(struct init *init);

/* init_relay.c: from now on what goes through the terminal goes through the driver's socket. */
void relay_between(struct init *init, int controller, int socket);
/* Passes on what can be; returns 0 when nothing of what was shown is left. */
int relay_pass(const struct init *init);
/* All that is shown when the command has ended; bounded. */
void relay_finish(const struct init *init);
void relay_resize(const struct init *init, unsigned int rows, unsigned int columns);

/* init_tree.c: signals every process that descends from this one; returns how many there are. */
unsigned int signal_descendants(int signo);

#endif
