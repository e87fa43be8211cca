/* The report protocol between a driver and the init: the one source of its numbers.
 *
 * One packet of a SOCK_SEQPACKET socket is one message: a header of 16 bytes, then a body whose
 * length the header repeats. Little endian, as are all machines that ocisbx supports.
 * protocol.py holds the same numbers; a test compares the two. The manual is ocisbx-init(7).
 */
#ifndef OSBX_PROTOCOL_H
#define OSBX_PROTOCOL_H

#define OSBX_MAGIC 0x5842534f
#define OSBX_VERSION 1
#define OSBX_REPORT_FD 3

/* driver -> init */
#define OSBX_TYPE_GO 1
#define OSBX_TYPE_SIGNAL 2
#define OSBX_TYPE_END 3
#define OSBX_TYPE_RUN 4
#define OSBX_TYPE_LISTEN 5
#define OSBX_TYPE_RESIZE 6

/* init -> driver */
#define OSBX_TYPE_READY 16
#define OSBX_TYPE_STARTED 17
#define OSBX_TYPE_FAILED 18
#define OSBX_TYPE_EXITED 19
#define OSBX_TYPE_TERMINAL 20

#define OSBX_COMMAND_CONTAINER 0
#define OSBX_COMMAND_PAYLOAD 1

/* what READY announces beyond the first init's: GO_ENDS */
#define OSBX_FEATURES 1

#define OSBX_GO_STDIN 1
#define OSBX_GO_STDOUT 2
#define OSBX_GO_STDERR 4
#define OSBX_GO_COMBINE 8
/* RUN only: the strings come in a file, the command has a channel of its own */
#define OSBX_GO_STORED 16
#define OSBX_GO_CHANNEL 32
/* stdin, stdout and stderr are a terminal: with GO the one that the runtime gave the init; with RUN
 * and a channel one that is made for the command, and where stdin comes too relayed through that */
#define OSBX_GO_TERMINAL 64
/* GO only: once it has reported, the init waits for no END */
#define OSBX_GO_ENDS 128

#define OSBX_TARGET_PAYLOAD 0
#define OSBX_TARGET_GROUP 1
#define OSBX_TARGET_ALL 2

#define OSBX_STAGE_CLONE 1
#define OSBX_STAGE_STDIO 2
#define OSBX_STAGE_CHDIR 3
#define OSBX_STAGE_EXEC 4
#define OSBX_STAGE_LANDLOCK 5
#define OSBX_STAGE_USER 6
#define OSBX_STAGE_TERMINAL 7

#define OSBX_KIND_EXITED 1
#define OSBX_KIND_SIGNALED 2
#define OSBX_KIND_DUMPED 3

/* how long the init waits for END, for the last processes to be reaped, for room to send */
#define OSBX_PATIENCE_MS 2000

struct osbx_header {
	unsigned int magic;
	unsigned short version;
	unsigned short type;
	unsigned int command;
	unsigned int length;
};

/* RUN: what follows it, here or in the file, are strings that end with a NUL each: the working
 * directory (empty: the init's own), argv, the environment; `size` is their length together. */
struct osbx_run {
	unsigned int flags;
	unsigned int argc;
	unsigned int envc;
	unsigned int size;
	unsigned int uid;
	unsigned int gid;
};

/* a uid or gid of RUN: the init's own */
#define OSBX_OWN_ID 0xffffffffu
/* longer strings come in a file */
#define OSBX_RUN_ROOM 32768

/* GO: flags, 0. RESIZE: rows, columns. SIGNAL: signo, target. READY: features, 0. STARTED: pid, 0. FAILED: stage, errno. */
struct osbx_pair {
	unsigned int first;
	unsigned int second;
};

struct osbx_usage {
	unsigned long utime_us;
	unsigned long stime_us;
	unsigned long maxrss_bytes;
	unsigned long minflt;
	unsigned long majflt;
	unsigned long inblock;
	unsigned long oublock;
	unsigned long nvcsw;
	unsigned long nivcsw;
};

/* signals: how many of the driver's SIGNALs reached the payload while it lived. A driver that
 * ends a payload tells by it whether the payload had ended by itself before. */
struct osbx_exited {
	unsigned int kind;
	unsigned int status;
	unsigned long wall_ns;
	unsigned int signals;
	unsigned int reserved;
	struct osbx_usage payload;
	struct osbx_usage total;
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the protocol is little endian");
_Static_assert(sizeof(struct osbx_header) == 16, "header without padding");
_Static_assert(sizeof(struct osbx_exited) == 168, "exited without padding");

#endif
