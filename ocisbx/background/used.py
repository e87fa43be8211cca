"""When a session with a limit of idleness was last used: a file in its directory, by which it ends.

Who runs a command holds a shared lock on it, so that the kernel lets go where the command's driver
is killed, and writes the time since boot (which nobody can set) into it at the beginning and the
end.
"""

from __future__ import annotations

import fcntl
import os
import struct

from ocisbx.bundle.record import boot_s

USED_FILE = "used"
FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_MOMENT = struct.Struct("<d")


class Use:
    """The session of a directory knows that it is used, until `end`."""

    def __init__(self, directory: str) -> None:
        """Raises OSError: it is gone."""
        self._descriptor = os.open(f"{directory}/{USED_FILE}", FLAGS, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            self._note()
        except BaseException:
            os.close(self._descriptor)
            raise

    def end(self) -> None:
        """No more; once."""
        try:
            self._note()
        finally:
            os.close(self._descriptor)

    def _note(self) -> None:
        try:
            os.pwrite(self._descriptor, _MOMENT.pack(boot_s()), 0)
        except OSError:
            # On a full disk the session only ends earlier.
            return


def last_used(directory: str, never: float) -> float:
    """When it was, in seconds since boot: now where it is at this moment, `never` where it never
    was."""
    try:
        descriptor = os.open(f"{directory}/{USED_FILE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return never
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = os.pread(descriptor, _MOMENT.size, 0)
    except BlockingIOError:
        return boot_s()
    finally:
        os.close(descriptor)
    if len(data) < _MOMENT.size:
        return never
    moment: float = _MOMENT.unpack(data)[0]
    # What a payload cannot write is still not believed when it cannot be.
    return moment if never <= moment <= boot_s() else never
