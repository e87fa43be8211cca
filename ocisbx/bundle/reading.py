"""Reading what lies in a bundle that anybody may have written: a payload can reach the workspace."""

from __future__ import annotations

import errno
import os
import stat

# config.json of a container with thousands of mounts has a few megabytes.
READ_LIMIT_BYTES = 16 << 20


def read_regular(path: str) -> str:
    """The text of a regular file: never waits for a pipe, never reads without end.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large.
        ValueError: it is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = file.read(READ_LIMIT_BYTES + 1)
    if len(data) > READ_LIMIT_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data.decode()
