"""The driver's half of the init's report protocol, version 1; see ocisbx-init(7).

The numbers are those of protocol.h. One message of a SOCK_SEQPACKET socket is one packet: a header
of 16 bytes and a body, little endian. Everything here is pure; wire.py moves the packets.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ocisbx.errors import RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC: Final = 0x5842534F
VERSION: Final = 1
REPORT_FD: Final = 3
FEATURES: Final = 1
OWN_ID: Final = 0xFFFFFFFF
RUN_ROOM: Final = 32768
"""Strings of a RUN beyond this length are sent in a file."""
COMMAND_CONTAINER: Final = 0
COMMAND_PAYLOAD: Final = 1
PATIENCE_MS: Final = 2000
"""How long the init waits for END, for the last processes to be reaped, for room to send."""

_HEADER: Final = struct.Struct("<IHHII")
_PAIR: Final = struct.Struct("<II")
_RUN: Final = struct.Struct("<6I")
_EXITED: Final = struct.Struct("<IIQII18Q")
_USAGE_FIELDS: Final = 9
_SIGNAL_MAX: Final = 64


class ProtocolError(RuntimeFailed):
    """What came over the report socket is not a packet of the init."""


class Type(IntEnum):
    """A packet's type: below 16 from the driver, from 16 on from the init."""

    GO = 1
    SIGNAL = 2
    END = 3
    RUN = 4
    LISTEN = 5
    RESIZE = 6
    READY = 16
    STARTED = 17
    FAILED = 18
    EXITED = 19
    TERMINAL = 20


class GoFlag(IntFlag):
    """Which descriptors come with GO or RUN, in this order; COMBINE: stderr is the same as stdout.

    With RUN only: STORED, its strings are in a file; CHANNEL, it reports over a socket of its own.
    TERMINAL: all three are a terminal; with GO the one that the runtime gave the init, with RUN and
    CHANNEL one that the init makes, whose controlling end it sends; with STDIN too it relays that
    through the socket that comes as stdin. GO then starts the command.
    With GO only: ENDS, once it has reported it waits for no END.
    """

    STDIN = 1
    STDOUT = 2
    STDERR = 4
    COMBINE = 8
    STORED = 16
    CHANNEL = 32
    TERMINAL = 64
    ENDS = 128


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
    USER = 6
    TERMINAL = 7


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
    """Start the payload; the descriptors that the flags (GoFlag) name come with the packet."""

    flags: int


class Run(NamedTuple):
    """Start a command: the container's own, or with CHANNEL a further one.

    `flags`: of GoFlag. `strings`: the working directory (empty: the container's), argv, the
    environment, each ended by a NUL; empty with STORED. `uid`, `gid`: OWN_ID for the container's
    own.
    """

    flags: int
    argc: int
    envc: int
    size: int
    uid: int = OWN_ID
    gid: int = OWN_ID
    strings: bytes = b""


class Signal(NamedTuple):
    """Send a signal inside the container."""

    signo: int
    target: Target


class End(NamedTuple):
    """The report has been used; the init may exit."""


class Listen(NamedTuple):
    """With one end of a pair of sockets: further commands are ordered there."""


class Resize(NamedTuple):
    """The size of a terminal that is relayed."""

    rows: int
    columns: int


class Ready(NamedTuple):
    """The init waits for GO; `features`: 1, it knows GO's ENDS."""

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


class Terminal(NamedTuple):
    """With the controlling end of a command's terminal; the command waits for GO."""


Order: TypeAlias = Go | Run | Signal | End | Listen | Resize
Report: TypeAlias = Ready | Started | Failed | Exited | Terminal
Packet: TypeAlias = Order | Report
ORDERS: Final[frozenset[type[Packet]]] = frozenset({Go, Run, Signal, End, Listen, Resize})

_TYPE_OF: Final[dict[type[Packet], Type]] = {
    Go: Type.GO,
    Run: Type.RUN,
    Signal: Type.SIGNAL,
    End: Type.END,
    Listen: Type.LISTEN,
    Resize: Type.RESIZE,
    Ready: Type.READY,
    Started: Type.STARTED,
    Failed: Type.FAILED,
    Exited: Type.EXITED,
    Terminal: Type.TERMINAL,
}


# To look one up takes a tenth of asking the enum.
_TYPES: Final = {kind.value: kind for kind in Type}
_KINDS: Final = {kind.value: kind for kind in Kind}


def encode(packet: Packet, command: int | None = None) -> bytes:
    """The packet's bytes; `command` defaults to the container for READY, END, LISTEN, else to 1.

    Raises struct.error where a number does not fit its field.
    """
    body = _encode_body(packet)
    if command is None:
        command = COMMAND_CONTAINER if type(packet) in _OF_THE_CONTAINER else COMMAND_PAYLOAD
    return _HEADER.pack(MAGIC, VERSION, _TYPE_OF[type(packet)], command, len(body)) + body


_OF_THE_CONTAINER: Final[frozenset[type[Packet]]] = frozenset({Ready, End, Listen})


def _encode_body(packet: Packet) -> bytes:
    match packet:
        case Run():
            return _RUN.pack(*packet[:6]) + packet.strings
        case Exited(kind, status, wall_ns, signals, payload, total):
            return _EXITED.pack(kind, status, wall_ns, signals, 0, *payload, *total)
        case Signal() | Failed() | Resize():
            return _PAIR.pack(*packet)
        case Go() | Ready() | Started():
            return _PAIR.pack(packet[0], 0)
        case End() | Listen() | Terminal():
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
        return _decode_body(_TYPES.get(number) or Type(number), body), command
    except (struct.error, ValueError) as error:
        raise ProtocolError("report socket: malformed packet", why=str(error)) from None


def _decode_body(kind: Type, body: bytes) -> Packet:
    if kind is Type.EXITED:
        return _decode_exited(body)
    if kind in _EMPTY:
        if body:
            raise ValueError(f"{kind.name} has a body")
        return _EMPTY[kind]
    if kind is Type.RUN:
        return _decode_run(body)
    first, second = _PAIR.unpack(body)
    if kind in _PAIRS:
        return _PAIRS[kind](first, second)
    if kind is Type.SIGNAL and 0 < first <= _SIGNAL_MAX:
        return Signal(first, Target(second))
    if kind in _SINGLES and not second:
        return _SINGLES[kind](first)
    raise ValueError(f"{kind.name} with {first}, {second}")


def _decode_run(body: bytes) -> Run:
    flags, argc, envc, size, uid, gid = _RUN.unpack_from(body)
    strings = body[_RUN.size :]
    if flags >= 2 * GoFlag.TERMINAL:
        raise ValueError(f"RUN with flags {flags:#x}")
    if len(strings) != (0 if flags & GoFlag.STORED else size):
        raise ValueError(f"RUN with {len(strings)} bytes of strings, and size {size}")
    return Run(flags, argc, envc, size, uid, gid, strings)


_EMPTY: Final[dict[Type, Packet]] = {
    Type.END: End(),
    Type.LISTEN: Listen(),
    Type.TERMINAL: Terminal(),
}


_GO_FLAGS: Final = int(
    GoFlag.STDIN | GoFlag.STDOUT | GoFlag.STDERR | GoFlag.COMBINE | GoFlag.TERMINAL | GoFlag.ENDS
)


def _go(flags: int) -> Go:
    if flags & ~_GO_FLAGS:
        raise ValueError(f"GO with flags {flags:#x}")
    return Go(flags)


_PAIRS: Final[dict[Type, Callable[[int, int], Packet]]] = {
    Type.FAILED: lambda stage, number: Failed(Stage(stage), number),
    Type.RESIZE: Resize,
}
# Packets of one number; the second of the pair is reserved, and 0.
_SINGLES: Final[dict[Type, Callable[[int], Packet]]] = {
    Type.GO: _go,
    Type.READY: Ready,
    Type.STARTED: Started,
}


def _decode_exited(body: bytes) -> Exited:
    number, status, wall_ns, signals, reserved, *counters = _EXITED.unpack(body)
    kind = _KINDS.get(number) or Kind(number)
    if not (0 <= status <= 255 if kind is Kind.EXITED else 0 < status <= _SIGNAL_MAX):
        raise ValueError(f"{kind.name} with status {status}")
    if reserved:
        raise ValueError(f"EXITED with {reserved} in a reserved field")
    payload, total = counters[:_USAGE_FIELDS], counters[_USAGE_FIELDS:]
    return Exited(kind, status, wall_ns, signals, Usage(*payload), Usage(*total))
