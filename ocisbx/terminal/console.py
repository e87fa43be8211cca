"""The console socket (runc's docs/terminals.md): where a runtime sends the terminal that it made.

What comes there is taken from the runtime that we started alone, once, and only as one descriptor
of a terminal's controlling end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from typing import Final

from ocisbx.errors import TerminalError

NAME: Final = "console"
# unix(7): sun_path, with its NUL.
ADDRESS_ROOM_BYTES: Final = 108
_CREDENTIALS: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")
# Room for more than the one that we take: what is beyond it the kernel closes, and says so.
_MOST_DESCRIPTORS: Final = 4
_MESSAGE_ROOM: Final = 4096
# ioctl_tty(2), the same on all our machines: only a controlling end knows its number.
_TIOCGPTN: Final = 0x80045430


class ConsoleSocket:
    """A listening socket in `directory`, for one connection and one descriptor.

    `address` is what a runtime is told; one that can connect to longer ones, `path`. Every method
    raises TerminalError for what is not as it has to be; what came is closed then.
    """

    def __init__(self, directory: str) -> None:
        """`directory` is ours alone; its path may be longer than a socket's address."""
        self.path = f"{directory}/{NAME}"
        self._connection: socket.socket | None = None
        self._controller_fd: int | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._directory = -1
        try:
            self.address = self._bind(directory)
            os.chmod(self.path, 0o600)
            self._listener.settimeout(0)
            self._listener.listen(2)
        except OSError as error:
            self.close()
            raise TerminalError(
                "the console socket cannot be made", why=error.strerror or str(error)
            ) from error

    @property
    def received(self) -> bool:
        return self._controller_fd is not None

    def descriptors(self) -> list[int]:
        """What is readable when there is something to `take`."""
        # Once all is there a second connection is looked for at the end only.
        if self._controller_fd is not None:
            return []
        waiting = (self._listener, self._connection)
        return [one.fileno() for one in waiting if one is not None]

    def take(self, runtime_pid: int) -> None:
        """Deal with what is there, without waiting; `runtime_pid` is the process we started."""
        self._accept(runtime_pid)
        if self._connection is not None and self._controller_fd is None:
            self._receive(self._connection)

    def finish(self, runtime_pid: int) -> int:
        """The terminal's controlling end, which is the caller's from now on."""
        self.take(runtime_pid)
        if self._controller_fd is None:
            raise TerminalError("the runtime did not hand over the terminal")
        controller_fd, self._controller_fd = self._controller_fd, None
        self.close()
        return controller_fd

    def close(self) -> None:
        """Give up whatever is open; idempotent."""
        for one in (self._listener, self._connection):
            if one is not None:
                one.close()
        for descriptor in (self._controller_fd, self._directory):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._connection = self._controller_fd = None
        self._directory = -1
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _bind(self, directory: str) -> str:
        """Bind it; what a runtime is to be told."""
        if len(os.fsencode(self.path)) < ADDRESS_ROOM_BYTES:
            self._listener.bind(self.path)
            return self.path
        # By the directory's descriptor: nobody's working directory changes.
        self._directory = os.open(directory, os.O_DIRECTORY | os.O_PATH | os.O_CLOEXEC)
        short = f"fd/{self._directory}/{NAME}"
        self._listener.bind(f"/proc/self/{short}")
        return f"/proc/{os.getpid()}/{short}"

    def _accept(self, runtime_pid: int) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                raise TerminalError(
                    "the console socket takes no connection", why=error.strerror or str(error)
                ) from error
            if self._connection is not None:
                connection.close()
                raise TerminalError("a second connection came to the console socket")
            self._connection = connection
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _ = _CREDENTIALS.unpack(peer)
            if (pid, uid) != (runtime_pid, os.geteuid()):
                raise TerminalError(
                    "the console socket's peer is not the runtime that was started",
                    why=f"process {pid} of user {uid} connected, the runtime is {runtime_pid}",
                )
            connection.settimeout(0)

    def _receive(self, connection: socket.socket) -> None:
        try:
            # Not socket.recv_fds, which forgets its flags (Python 3.11).
            said, control, flags, _ = connection.recvmsg(
                _MESSAGE_ROOM,
                socket.CMSG_LEN(_MOST_DESCRIPTORS * _INT.size),
                socket.MSG_CMSG_CLOEXEC,
            )
        except BlockingIOError:
            return
        except OSError as error:
            raise TerminalError(
                "the console socket cannot be read", why=error.strerror or str(error)
            ) from error
        descriptors = _descriptors(control)
        try:
            _check(said, descriptors, flags)
        except TerminalError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._controller_fd = descriptors[0]


def _descriptors(control: list[tuple[int, int, bytes]]) -> list[int]:
    return [
        number
        for level, kind, data in control
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in _INT.iter_unpack(data[: len(data) // _INT.size * _INT.size])
    ]


def _check(said: bytes, descriptors: list[int], flags: int) -> None:
    """Whether this is one terminal's controlling end; what it is called (`said`) is no matter.

    Raises:
        TerminalError: it is anything else.
    """
    what = ""
    if flags & socket.MSG_CTRUNC and not descriptors:
        # The kernel says so, too, where it could not install the one that came (unix(7)).
        what = "no descriptor came of what the runtime sent: none is free (ulimit -n), or too many"
    elif flags & socket.MSG_CTRUNC or len(descriptors) > 1:
        what = "the runtime sent more than one descriptor"
    elif not said and not descriptors:
        what = "the runtime closed the console socket without a message"
    elif not descriptors:
        what = "the runtime sent a message without a descriptor"
    elif not is_controller(descriptors[0]):
        what = "what the runtime sent is not the controlling end of a terminal"
    if what:
        raise TerminalError(what)


def is_controller(descriptor: int) -> bool:
    """Whether this is the controlling end of a pseudoterminal."""
    try:
        fcntl.ioctl(descriptor, _TIOCGPTN, bytes(4))
    except OSError:
        return False
    return True
