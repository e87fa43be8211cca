/* What the files of ocisbx-cell share. */
#ifndef OSBX_CELL_H
#define OSBX_CELL_H

#include "sys.h"

#define PROGRAM "ocisbx-cell"
#define EXIT_FAILED 125

struct options {
	int user;
	int mount;
	int session;
	int keep;
	const char *joined;
	const char *looped;
	const char *workspace;
	const char *cgroup;
	const char *directory;
	char **argv;
};

_Noreturn void fail(const char *step, long error);
long check(const char *step, long result);

/* Mounts the directory that stdin names there, in the container whose process descriptor 3 is. */
void give_workspace(const char *destination);

#endif
