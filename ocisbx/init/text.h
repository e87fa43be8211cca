/* One line on stderr, written whole: `PROGRAM: STEP: reason (errno N)`. */
#ifndef OSBX_TEXT_H
#define OSBX_TEXT_H

#include "sys.h"

#define TEXT_ROOM 1024

struct text {
	unsigned int used;
	char bytes[TEXT_ROOM];
};

/* Control characters become '?': a name must not be able to forge a second line. */
static inline void text_add(struct text *text, const char *string)
{
	for (; *string && text->used < TEXT_ROOM - 1; string++) {
		unsigned char byte = (unsigned char)*string;
		text->bytes[text->used++] = byte < ' ' || byte == 127 ? '?' : *string;
	}
}

static inline void text_number(struct text *text, unsigned int value)
{
	char digits[12];
	int at = sizeof digits - 1;

	digits[at] = 0;
	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	text_add(text, digits + at);
}

static inline int text_equal(const char *one, const char *other)
{
	for (; *one && *one == *other; one++)
		other++;
	return *one == *other;
}

static inline const char *text_reason(int error)
{
	switch (error) {
	case EPERM: return "operation not permitted";
	case ENOENT: return "no such file or directory";
	case E2BIG: return "argument list too long";
	case ENOEXEC: return "exec format error";
	case EAGAIN: return "resource temporarily unavailable";
	case ENOMEM: return "cannot allocate memory";
	case EACCES: return "permission denied";
	case EBUSY: return "device or resource busy";
	case ENODEV: return "no such device";
	case ENOTDIR: return "not a directory";
	case EINVAL: return "invalid argument";
	case EMFILE: return "too many open files";
	case ENOSPC: return "no space left, or a limit of namespaces was reached";
	case ENAMETOOLONG: return "file name too long";
	case ENOSYS: return "function not implemented";
	case ELOOP: return "too many levels of symbolic links";
	case EUSERS: return "too many users";
	default: return "failed";
	}
}

/* `error` 0 leaves the reason out. */
static inline void text_complain(const char *program, const char *step, int error)
{
	struct text text = { .used = 0 };

	text_add(&text, program);
	text_add(&text, ": ");
	text_add(&text, step);
	if (error) {
		text_add(&text, ": ");
		text_add(&text, text_reason(error));
		text_add(&text, " (errno ");
		text_number(&text, (unsigned int)error);
		text_add(&text, ")");
	}
	text.bytes[text.used++] = '\n';
	SYS3(write, 2, text.bytes, text.used);
}

#endif
