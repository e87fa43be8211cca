"""Packets of the init's report protocol over a socket, with the descriptors that go along.

Imported on the hot path.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ocisbx.init.protocol import (
    ORDERS,
    OWN_ID,
    RUN_ROOM,
    End,
    Go,
    GoFlag,
    Listen,
    Order,
    ProtocolError,
    Report,
    Resize,
    Run,
    Signal,
    Target,
    Terminal,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    Descriptors = tuple[int | None, ...]

_CREDENTIALS: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")
# Room for one packet and for the kernel's credentials; more than any packet of version 1.
_PACKET_ROOM: Final = 4096
# The flags as numbers: each use of an enum's operators takes as long as a system call.
_CLOEXEC: Final = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED: Final = int(socket.MSG_TRUNC)
_COMBINE: Final = int(GoFlag.COMBINE)
_TERMINAL: Final = int(GoFlag.TERMINAL)
_ENDS: Final = int(GoFlag.ENDS)
# What the descriptors of a packet are, in their order.
_STDIO: Final = (int(GoFlag.STDIN), int(GoFlag.STDOUT), int(GoFlag.STDERR))
_RUNS: Final = (*_STDIO, int(GoFlag.STORED), int(GoFlag.CHANNEL))
# And for more descriptors than the one that is taken.
_CONTROL_ROOM: Final = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _INT.size)


class Received(NamedTuple):
    """One packet of the init. `pid` is the sender's in the driver's pid namespace, 0 if unknown;
    `descriptors` are who receives it's to close."""

    packet: Report
    command: int
    pid: int
    descriptors: tuple[int, ...] = ()


def report_socketpair() -> tuple[socket.socket, socket.socket]:
    """The driver's end and the init's; the init's becomes descriptor 3 of the runtime.

    SO_PASSCRED is set before the init can send: the kernel then names the sender of each packet,
    as a pid of the driver's own pid namespace (unix(7)).
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def send_go(
    sock: socket.socket,
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    combine: bool = False,
    terminal: bool = False,
    ends: bool = False,
) -> None:
    """Starts the payload with these descriptors; the caller keeps, and closes, its own copies.

    Without stdin the payload reads /dev/null; without stdout or stderr it has the init's own; with
    `terminal` all three are the one that the runtime made. With `ends` the init needs no
    `send_end`.
    Raises OSError when the init is gone.
    """
    given = (stdin, stdout, stderr)
    flags = _flags(_STDIO, given, combine=combine, terminal=terminal) | (_ENDS if ends else 0)
    _send(sock, Go(flags), [fd for fd in given if fd is not None])


def _flags(kinds: tuple[int, ...], given: Descriptors, *, combine: bool, terminal: bool) -> int:
    """The flags, among them those that say which descriptors come along."""
    flags = _COMBINE if combine else 0
    if terminal:
        flags |= _TERMINAL
    for kind, descriptor in zip(kinds, given, strict=True):
        if descriptor is not None:
            flags |= kind
    return flags


class Command(NamedTuple):
    """What RUN starts. `environment`: NAME=value. `directory`: empty, the container's own."""

    argv: Sequence[str]
    environment: Sequence[str]
    directory: str = ""
    uid: int = OWN_ID
    gid: int = OWN_ID


def send_run(
    sock: socket.socket,
    command: Command,
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    combine: bool = False,
    channel: int | None = None,
    terminal: bool = False,
) -> None:
    """Starts a command with these descriptors, as `send_go`; with `channel`, the init's end of a
    `report_socketpair`, one beside the container's own; with that and `terminal` it gets one, and
    waits for `send_go`.

    Raises:
        OSError: the init is gone; no memory for a long command.
    """
    words = (command.directory, *command.argv, *command.environment, "")
    strings = os.fsencode("\0".join(words))
    stored = None
    if len(strings) > RUN_ROOM:
        stored = _store(strings)
    given = (stdin, stdout, stderr, stored, channel)
    flags = _flags(_RUNS, given, combine=combine, terminal=terminal)
    counts = len(command.argv), len(command.environment), len(strings)
    run = Run(flags, *counts, command.uid, command.gid, b"" if stored is not None else strings)
    try:
        _send(sock, run, [fd for fd in given if fd is not None])
    finally:
        if stored is not None:
            os.close(stored)


def _send(sock: socket.socket, packet: Order, fds: Sequence[int]) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))
    sock.sendmsg([encode(packet)], [rights] if fds else [], socket.MSG_NOSIGNAL)


def _store(strings: bytes) -> int:
    """A file in memory that holds them, to be read from its start."""
    descriptor = os.memfd_create("command", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(strings)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def send_signal(sock: socket.socket, signo: int, target: Target = Target.PAYLOAD) -> None:
    """Sends a signal inside the container. Raises OSError when the init is gone."""
    sock.send(encode(Signal(signo, target)), socket.MSG_NOSIGNAL)


def send_resize(sock: socket.socket, rows: int, columns: int) -> None:
    """Gives a relayed terminal this size. Raises OSError."""
    sock.send(encode(Resize(rows, columns)), socket.MSG_NOSIGNAL)


def send_listen(sock: socket.socket, orders: int) -> None:
    """Has the init take further commands there, at one end of a pair of sockets (`send_run` with
    a channel, at the other). Raises OSError."""
    _send(sock, Listen(), [orders])


def send_end(sock: socket.socket) -> None:
    """Lets the init exit, and with it the container. Raises OSError when it is gone already."""
    sock.send(encode(End()), socket.MSG_NOSIGNAL)


def receive(sock: socket.socket, flags: int = 0) -> Received | None:
    """The init's next packet, or None when its end is closed; blocks as the socket does.

    Raises ProtocolError for anything but a report, OSError (BlockingIOError, TimeoutError) as
    recvmsg(2) does. Descriptors that came along are closed, but for those of a Terminal.
    """
    flags |= _CLOEXEC
    try:
        data, control, got, _ = sock.recvmsg(_PACKET_ROOM, _CONTROL_ROOM, flags)
    except ConnectionResetError:
        # The init's end was closed with an order of ours unread in it. The kernel says so once,
        # before it hands out what the init had sent.
        data, control, got, _ = sock.recvmsg(_PACKET_ROOM, _CONTROL_ROOM, flags)
    pid, descriptors = _take_control(control)
    kept = False
    try:
        if not data:
            return None
        if got & _TRUNCATED:
            raise ProtocolError(f"report socket: packet longer than {_PACKET_ROOM} bytes")
        packet: Any
        packet, command = decode(data)
        if type(packet) in ORDERS:
            raise ProtocolError(f"report socket: the init sent {type(packet).__name__}")
        kept = isinstance(packet, Terminal)
        return Received(packet, command, pid, tuple(descriptors) if kept else ())
    finally:
        for descriptor in [] if kept else descriptors:
            os.close(descriptor)


def _take_control(control: list[tuple[int, int, bytes]]) -> tuple[int, list[int]]:
    pid, descriptors = 0, []
    for level, kind, data in control:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            pid = _CREDENTIALS.unpack_from(data)[0]
        elif kind == socket.SCM_RIGHTS:
            whole = data[: len(data) // _INT.size * _INT.size]
            descriptors += [fd for (fd,) in _INT.iter_unpack(whole)]
    return pid, descriptors
