/* Children that have ended: the payload's status and what everything together used. */
#include "init.h"

static unsigned long microseconds(const struct timeval *time)
{
	return (unsigned long)time->tv_sec * 1000000UL + (unsigned long)time->tv_usec;
}

static void usage_add(struct osbx_usage *sum, const struct rusage *one)
{
	unsigned long maxrss_bytes = (unsigned long)one->maxrss * 1024;

	sum->utime_us += microseconds(&one->utime);
	sum->stime_us += microseconds(&one->stime);
	if (sum->maxrss_bytes < maxrss_bytes)
		sum->maxrss_bytes = maxrss_bytes;
	sum->minflt += (unsigned long)one->minflt;
	sum->majflt += (unsigned long)one->majflt;
	sum->inblock += (unsigned long)one->inblock;
	sum->oublock += (unsigned long)one->oublock;
	sum->nvcsw += (unsigned long)one->nvcsw;
	sum->nivcsw += (unsigned long)one->nivcsw;
}

/* Not further than the payload: what is left then is looked for by who ends it. */
int reap(struct reaper *reaper)
{
	for (;;) {
		struct rusage usage;
		int status = 0;
		long pid = SYS4(wait4, -1, &status, WNOHANG, &usage);

		if (pid <= 0)
			return pid != -ECHILD;
		usage_add(&reaper->total_usage, &usage);
		if (pid == reaper->leader) {
			reaper->leader = 0;
			reaper->lost_leaders++;
		}
		if (pid == reaper->payload && !reaper->payload_ended) {
			reaper->ended_ns = now_ns();
			reaper->payload_ended = 1;
			reaper->payload_status = status;
			usage_add(&reaper->payload_usage, &usage);
			return 1;
		}
	}
}

/* wait(2)'s encoding: the low 7 bits are the signal, 0x80 says core dumped, then the code. */
static int signal_of(int wait_status)
{
	return wait_status & 0x7f;
}

int exit_code_of(int wait_status)
{
	int signal = signal_of(wait_status);

	return signal ? 128 + signal : (wait_status >> 8) & 0xff;
}

void report_exited(const struct reaper *reaper)
{
	int signal = signal_of(reaper->payload_status);
	struct osbx_exited body = {
		.kind = !signal ? OSBX_KIND_EXITED :
			reaper->payload_status & 0x80 ? OSBX_KIND_DUMPED : OSBX_KIND_SIGNALED,
		.status = signal ? (unsigned int)signal :
				   (unsigned int)exit_code_of(reaper->payload_status),
		.wall_ns = reaper->ended_ns - reaper->started_ns,
		.signals = reaper->signals,
		.payload = reaper->payload_usage,
		.total = reaper->total_usage,
	};

	report_send(OSBX_TYPE_EXITED, OSBX_COMMAND_PAYLOAD, &body, sizeof body);
}
