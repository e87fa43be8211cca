/* What a program without a C library needs once: its entry, the functions that compilers call on
 * their own, and one line on stderr. Included by one file of each program.
 */
#ifndef OSBX_START_H
#define OSBX_START_H

#include "sys.h"

int program(int argc, char **argv, char **envp);

/* The kernel leaves argc, argv, NULL, envp, NULL on the stack (System V ABI, "process stack"). */
__attribute__((used)) _Noreturn static void start(long *stack)
{
	int argc = (int)stack[0];
	char **argv = (char **)(stack + 1);

	sys_exit(program(argc, argv, argv + argc + 1));
}

#if defined(__x86_64__)
__asm__(".text\n.global _start\n_start:\n"
	"xor %ebp, %ebp\n"
	"mov %rsp, %rdi\n"
	"and $-16, %rsp\n"
	"call start\n");
#else
__asm__(".text\n.global _start\n_start:\n"
	"mov x29, #0\n"
	"mov x30, #0\n"
	"mov x0, sp\n"
	"and sp, x0, #-16\n"
	"bl start\n");
#endif

/* The empty asm keeps compilers from turning these loops into calls of themselves. */
void *memcpy(void *to, const void *from, unsigned long count)
{
	char *target = to;
	const char *source = from;

	while (count--) {
		*target++ = *source++;
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

void *memset(void *to, int value, unsigned long count)
{
	char *target = to;

	while (count--) {
		*target++ = (char)value;
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

#endif
