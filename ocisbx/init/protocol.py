"""The driver's half of the init's report protocol, version 1; see ocisbx-init(7).

The numbers are those of protocol.h. One message of a SOCK_SEQPACKET socket is one packet: a header
of 16 bytes and a body, little endian. `encode` and `decode` are pure; `receive` and the `send_*`
functions move packets. Imported on the hot path: nothing here but struct, socket, enum and typing.
"""

from __future__ import annotations

import os
import socket
import struct
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ocisbx.errors import RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC: Final = 0x5842534F
VERSION: Final = 1
REPORT_FD: Final = 3
FEATURES: Final = 0
COMMAND_CONTAINER: Final = 0
COMMAND_PAYLOAD: Final = 1
PATIENCE_MS: Final = 2000
"""How long the init waits for END, for the last processes to be reaped, for room to send."""

_HEADER: Final = struct.Struct("<IHHII")
_PAIR: Final = struct.Struct("<II")
_EXITED: Final = struct.Struct("<IIQII18Q")
_CREDENTIALS: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")
_USAGE_FIELDS: Final = 9
_SIGNAL_MAX: Final = 64
# Room for one packet and for the kernel's credentials; more than any packet of version 1.
_PACKET_ROOM: Final = 4096
_CONTROL_ROOM: Final = socket.CMSG_SPACE(_CREDENTIALS.size)


class ProtocolError(RuntimeFailed):
    """What came over the report socket is not a packet of the init."""


class Type(IntEnum):
    """A packet's type: below 16 from the driver, from 16 on from the init."""

    GO = 1
    SIGNAL = 2
    END = 3
    RUN = 4
    READY = 16
    STARTED = 17
    FAILED = 18
    EXITED = 19


class GoFlag(IntFlag):
    """Which descriptors come with GO, in this order; COMBINE makes stderr the same as stdout."""

    STDIN = 1
    STDOUT = 2
    STDERR = 4
    COMBINE = 8


class Target(IntEnum):
    """Who gets a signal: the payload's process, its process group, all but the init."""

    PAYLOAD = 0
    GROUP = 1
    ALL = 2


class Stage(IntEnum):
    """Where the start of a payload failed."""

    CLONE = 1
    STDIO = 2
    CHDIR = 3
    EXEC = 4
    LANDLOCK = 5


class Kind(IntEnum):
    """How a payload ended; DUMPED is a signal that left a core."""

    EXITED = 1
    SIGNALED = 2
    DUMPED = 3


class Usage(NamedTuple):
    """What getrusage(2) counts, of one process and the children that it waited for."""

    user_usec: int
    system_usec: int
    max_rss_bytes: int
    minor_faults: int
    major_faults: int
    blocks_in: int
    blocks_out: int
    voluntary_switches: int
    involuntary_switches: int


class Go(NamedTuple):
    """Start the payload; the descriptors that the flags name come with the packet."""

    flags: GoFlag


class Signal(NamedTuple):
    """Send a signal inside the container."""

    signo: int
    target: Target


class End(NamedTuple):
    """The report has been used; the init may exit."""


class Ready(NamedTuple):
    """The init waits for GO; `features` is what it can do beyond version 1."""

    features: int


class Started(NamedTuple):
    """The payload's exec has succeeded; `pid` counts in the container."""

    pid: int


class Failed(NamedTuple):
    """The payload could not be started; nothing follows."""

    stage: Stage
    errno: int


class Exited(NamedTuple):
    """The payload has ended, and with it everything else in the container.

    `status` is the exit code, or the signal's number. `signals` counts the driver's SIGNALs that
    reached the payload while it lived. `payload` is what wait4(2) gave for the
    payload, `total` the sum (of max_rss_bytes: the maximum) over all processes the init reaped.
    """

    kind: Kind
    status: int
    wall_ns: int
    signals: int
    payload: Usage
    total: Usage


Order: TypeAlias = Go | Signal | End
Report: TypeAlias = Ready | Started | Failed | Exited
Packet: TypeAlias = Order | Report


class Received(NamedTuple):
    """One packet of the init. `pid` is the sender's in the driver's pid namespace, 0 if unknown."""

    packet: Report
    command: int
    pid: int


_TYPE_OF: Final[dict[type[Packet], Type]] = {
    Go: Type.GO,
    Signal: Type.SIGNAL,
    End: Type.END,
    Ready: Type.READY,
    Started: Type.STARTED,
    Failed: Type.FAILED,
    Exited: Type.EXITED,
}


def encode(packet: Packet, command: int | None = None) -> bytes:
    """The packet's bytes; `command` defaults to the container for READY and END, else the payload.

    Raises struct.error where a number does not fit its field.
    """
    body = _encode_body(packet)
    if command is None:
        whole = isinstance(packet, Ready | End)
        command = COMMAND_CONTAINER if whole else COMMAND_PAYLOAD
    header = _HEADER.pack(MAGIC, VERSION, _TYPE_OF[type(packet)], command, len(body))
    return header + body


def _encode_body(packet: Packet) -> bytes:
    match packet:
        case Exited(kind, status, wall_ns, signals, payload, total):
            return _EXITED.pack(kind, status, wall_ns, signals, 0, *payload, *total)
        case Signal() | Failed():
            return _PAIR.pack(*packet)
        case Go() | Ready() | Started():
            return _PAIR.pack(packet[0], 0)
        case End():
            return b""


def decode(data: bytes) -> tuple[Packet, int]:
    """The packet and its command id. Raises ProtocolError for anything but one whole packet."""
    try:
        magic, version, number, command, length = _HEADER.unpack_from(data)
    except struct.error as error:
        raise ProtocolError("report socket: packet too short", why=str(error)) from None
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(
            f"report socket: not protocol {VERSION}", why=f"magic {magic:#x}, version {version}"
        )
    body = data[_HEADER.size :]
    if length != len(body):
        raise ProtocolError(f"report socket: body of {len(body)} bytes, header says {length}")
    try:
        return _decode_body(Type(number), body), command
    except (struct.error, ValueError) as error:
        raise ProtocolError("report socket: malformed packet", why=str(error)) from None


def _decode_body(kind: Type, body: bytes) -> Packet:
    if kind is Type.EXITED:
        return _decode_exited(body)
    if kind is Type.END:
        if body:
            raise ValueError("END has a body")
        return End()
    first, second = _PAIR.unpack(body)
    if kind is Type.FAILED:
        return Failed(Stage(first), second)
    if kind is Type.SIGNAL and 0 < first <= _SIGNAL_MAX:
        return Signal(first, Target(second))
    if kind in _SINGLES and not second:
        return _SINGLES[kind](first)
    raise ValueError(f"{kind.name} with {first}, {second}")


def _go(flags: int) -> Go:
    if flags >= 2 * GoFlag.COMBINE:
        raise ValueError(f"GO with flags {flags:#x}")
    return Go(GoFlag(flags))


# Packets of one number; the second of the pair is reserved, and 0.
_SINGLES: Final[dict[Type, Callable[[int], Packet]]] = {
    Type.GO: _go,
    Type.READY: Ready,
    Type.STARTED: Started,
}


def _decode_exited(body: bytes) -> Exited:
    number, status, wall_ns, signals, reserved, *counters = _EXITED.unpack(body)
    kind = Kind(number)
    if not (0 <= status <= 255 if kind is Kind.EXITED else 0 < status <= _SIGNAL_MAX):
        raise ValueError(f"{kind.name} with status {status}")
    if reserved:
        raise ValueError(f"EXITED with {reserved} in a reserved field")
    payload, total = counters[:_USAGE_FIELDS], counters[_USAGE_FIELDS:]
    return Exited(kind, status, wall_ns, signals, Usage(*payload), Usage(*total))


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
) -> None:
    """Starts the payload with these descriptors; the caller keeps, and closes, its own copies.

    Without stdin the payload reads /dev/null; without stdout or stderr it has the init's own.
    Raises OSError when the init is gone.
    """
    given = {GoFlag.STDIN: stdin, GoFlag.STDOUT: stdout, GoFlag.STDERR: stderr}
    flags = GoFlag.COMBINE if combine else GoFlag(0)
    fds = []
    for flag, fd in given.items():
        if fd is not None:
            flags |= flag
            fds.append(fd)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))
    sock.sendmsg([encode(Go(flags))], [rights] if fds else [], socket.MSG_NOSIGNAL)


def send_signal(sock: socket.socket, signo: int, target: Target = Target.PAYLOAD) -> None:
    """Sends a signal inside the container. Raises OSError when the init is gone."""
    sock.send(encode(Signal(signo, target)), socket.MSG_NOSIGNAL)


def send_end(sock: socket.socket) -> None:
    """Lets the init exit, and with it the container. Raises OSError when it is gone already."""
    sock.send(encode(End()), socket.MSG_NOSIGNAL)


def receive(sock: socket.socket, flags: int = 0) -> Received | None:
    """The init's next packet, or None when its end is closed; blocks as the socket does.

    Raises ProtocolError for anything but a report, OSError (BlockingIOError, TimeoutError) as
    recvmsg(2) does. Descriptors that came along are closed.
    """
    flags |= socket.MSG_CMSG_CLOEXEC
    try:
        data, control, got, _ = sock.recvmsg(_PACKET_ROOM, _CONTROL_ROOM, flags)
    except ConnectionResetError:
        # The init's end was closed with an order of ours unread in it. The kernel says so once,
        # before it hands out what the init had sent.
        data, control, got, _ = sock.recvmsg(_PACKET_ROOM, _CONTROL_ROOM, flags)
    pid = _take_control(control)
    if not data:
        return None
    if got & socket.MSG_TRUNC:
        raise ProtocolError(f"report socket: packet longer than {_PACKET_ROOM} bytes")
    packet, command = decode(data)
    if isinstance(packet, Go | Signal | End):
        raise ProtocolError(f"report socket: the init sent {type(packet).__name__}")
    return Received(packet, command, pid)


def _take_control(control: list[tuple[int, int, bytes]]) -> int:
    pid = 0
    for level, kind, data in control:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            pid = _CREDENTIALS.unpack_from(data)[0]
        elif kind == socket.SCM_RIGHTS:
            for (fd,) in _INT.iter_unpack(data[: len(data) // _INT.size * _INT.size]):
                os.close(fd)
    return pid
