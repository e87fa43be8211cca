/* What the init's files share. */
#ifndef OSBX_INIT_H
#define OSBX_INIT_H

#include "protocol.h"
#include "sys.h"

#define EXIT_NOT_FOUND 127
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_FAILED 125

#define STDIO_COUNT 3
#define NO_DESCRIPTOR (-1)

typedef unsigned long sigset;
#define SIGBIT(signo) (1UL << ((signo) - 1))

/* One packet of the driver: `fds` are the descriptors that came with it, in order. */
struct packet {
	struct osbx_header header;
	struct osbx_pair body;
	unsigned int fd_count;
	int fds[STDIO_COUNT];
};

enum received { RECEIVED_PACKET, RECEIVED_NOTHING, RECEIVED_HANGUP, RECEIVED_MALFORMED };

struct launch {
	char **argv;
	/* pairs of "-w" and a path, then "--" */
	char **rules;
	char **envp;
	/* what becomes 0, 1 and 2; NO_DESCRIPTOR leaves the init's own */
	int stdio[STDIO_COUNT];
	int null_stdin;
	int combine;
	int own_terminal;
	/* written by the child, which shares our memory until its exec */
	volatile unsigned int stage;
	volatile unsigned int error;
};

/* init_exec.c: clone(2) onto a stack that all children share, so `flags` hold CLONE_VFORK;
 * `function` must not return. */
long clone_child(unsigned long flags, void (*function)(void *), void *argument);
/* Returns the payload's pid, or 0 with `stage` and `error` set. */
int launch_payload(struct launch *launch);

/* init_landlock.c: the kernel's ABI, or a negative errno. */
long landlock_abi(void);
/* Confines the calling thread to writing beneath the paths of `rules`, as far as the kernel can;
 * returns 0 (also where it has no Landlock) or a negative errno. */
long landlock_confine(char **rules);

/* init_selftest.c: returns the exit code. */
int self_test(void);

/* init_report.c */
unsigned long now_ns(void);
int report_socket_given(void);
void report_send(unsigned int type, unsigned int command, const void *body, unsigned int length);
void report_pair(unsigned int type, unsigned int command, unsigned int first, unsigned int second);
enum received report_receive(struct packet *packet);
void packet_close_fds(struct packet *packet);

/* init_reap.c */
struct reaper {
	int payload;
	int payload_ended;
	int payload_status;
	unsigned int signals;
	unsigned long started_ns;
	unsigned long ended_ns;
	struct osbx_usage payload_usage;
	struct osbx_usage total_usage;
};

/* Reaps what has ended; returns 1 while children are left, 0 when there are none. */
int reap(struct reaper *reaper);
void report_exited(const struct reaper *reaper);
int exit_code_of(int wait_status);

#endif
