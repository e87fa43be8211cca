"""The driver's half of the report protocol: the same numbers as the C header, and hostile bytes."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.init import protocol, wire
from ocisbx.init.protocol import (
    End,
    Exited,
    Failed,
    Go,
    GoFlag,
    Kind,
    Listen,
    ProtocolError,
    Ready,
    Resize,
    Run,
    Signal,
    Stage,
    Started,
    Target,
    Terminal,
    Type,
    Usage,
)

HEADER = Path(protocol.__file__).with_name("protocol.h").read_text()
DEFINES = {
    name: int(value.rstrip("u"), 0)
    for name, value in re.findall(r"^#define OSBX_(\w+) (\w+)$", HEADER, re.MULTILINE)
}
ENUMS = {"TYPE": Type, "GO": GoFlag, "TARGET": Target, "STAGE": Stage, "KIND": Kind}
SINGLES = (
    *("MAGIC", "VERSION", "REPORT_FD", "COMMAND_CONTAINER", "COMMAND_PAYLOAD", "FEATURES"),
    *("RUN_ROOM", "OWN_ID"),
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
USAGES = st.builds(Usage, *[U64] * 9)


def _with_stdio(flags: int) -> st.SearchStrategy[GoFlag]:
    return st.integers(0, 15).map(lambda stdio: GoFlag(flags | stdio))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A RUN whose size fits its strings, here or in a file."""
    strings = draw(st.binary(max_size=60))
    flags = GoFlag(draw(st.integers(0, 127)))
    argc, envc, size, uid, gid = (draw(U32) for _ in range(5))
    if flags & GoFlag.STORED:
        return Run(flags, argc, envc, size, uid, gid)
    return Run(flags, argc, envc, len(strings), uid, gid, strings)


PACKETS: st.SearchStrategy[protocol.Packet] = st.one_of(
    runs(),
    st.builds(Go, st.sampled_from([0, 64, 128, 192]).flatmap(_with_stdio)),
    st.builds(Signal, st.integers(1, 64), st.sampled_from(Target)),
    st.just(End()),
    st.just(Listen()),
    st.just(Terminal()),
    st.builds(Resize, U32, U32),
    st.builds(Ready, U32),
    st.builds(Started, st.integers(1, 2**22)),
    st.builds(Failed, st.sampled_from(Stage), U32),
    st.builds(Exited, st.just(Kind.EXITED), st.integers(0, 255), U64, U32, USAGES, USAGES),
    st.builds(
        Exited,
        st.sampled_from([Kind.SIGNALED, Kind.DUMPED]),
        st.integers(1, 64),
        U64,
        U32,
        USAGES,
        USAGES,
    ),
)


@pytest.mark.parametrize("prefix", ENUMS)
def test_the_enumerations_hold_the_numbers_of_the_header(prefix: str) -> None:
    in_header = {
        name.removeprefix(f"{prefix}_"): value
        for name, value in DEFINES.items()
        if name.startswith(f"{prefix}_")
    }
    assert in_header == {member.name: member.value for member in ENUMS[prefix]}


def test_the_constants_are_those_of_the_header_and_none_is_missing() -> None:
    assert {name: DEFINES[name] for name in SINGLES} == {
        name: getattr(protocol, name) for name in SINGLES
    }
    assert DEFINES["PATIENCE_MS"] == protocol.PATIENCE_MS

    known = (*SINGLES, "PATIENCE_MS", *(f"{prefix}_" for prefix in ENUMS))
    assert [name for name in DEFINES if not name.startswith(known)] == []


def test_usage_has_the_fields_of_the_header_in_their_order() -> None:
    [body] = re.findall(r"struct osbx_usage \{(.*?)\};", HEADER, re.DOTALL)
    in_header = re.findall(r"unsigned long (\w+);", body)
    assert in_header == [
        *("utime_us", "stime_us", "maxrss_bytes", "minflt", "majflt"),
        *("inblock", "oublock", "nvcsw", "nivcsw"),
    ]
    assert len(Usage._fields) == len(in_header)


def test_the_bytes_of_each_packet_are_as_the_manual_says() -> None:
    def header(number: int, command: int, length: int) -> bytes:
        return b"OSBX" + struct.pack("<HHII", 1, number, command, length)

    pair = struct.Struct("<II")
    assert protocol.encode(Go(GoFlag.STDIN | GoFlag.COMBINE)) == header(1, 1, 8) + pair.pack(9, 0)
    assert protocol.encode(Signal(15, Target.ALL)) == header(2, 1, 8) + pair.pack(15, 2)
    assert protocol.encode(End()) == header(3, 0, 0)
    assert protocol.encode(Listen()) == header(5, 0, 0)
    assert protocol.encode(Ready(0)) == header(16, 0, 8) + pair.pack(0, 0)
    assert protocol.encode(Started(2)) == header(17, 1, 8) + pair.pack(2, 0)
    assert protocol.encode(Failed(Stage.EXEC, 13)) == header(18, 1, 8) + pair.pack(4, 13)
    run = struct.pack("<6I", 36, 1, 0, 5, 7, protocol.OWN_ID) + b"/\0ls\0"
    flags = GoFlag.CHANNEL | GoFlag.STDERR
    assert protocol.encode(Run(flags, 1, 0, 5, 7, strings=b"/\0ls\0")) == header(4, 1, 29) + run
    usage = Usage(*range(9))
    body = struct.pack("<IIQII9Q9Q", 2, 9, 77, 3, 0, *range(9), *range(9))
    assert (
        protocol.encode(Exited(Kind.SIGNALED, 9, 77, 3, usage, usage)) == header(19, 1, 168) + body
    )


@given(PACKETS, U32)
def test_a_packet_survives_the_round_trip(packet: protocol.Packet, command: int) -> None:
    assert protocol.decode(protocol.encode(packet, command)) == (packet, command)


def _decodes_or_refuses(data: bytes) -> None:
    try:
        packet, command = protocol.decode(data)
    except ProtocolError:
        return
    assert protocol.encode(packet, command) == data


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_mean_one_packet(data: bytes) -> None:
    _decodes_or_refuses(data)


@given(PACKETS, st.data())
def test_a_packet_with_one_byte_changed_is_refused_or_another(
    packet: protocol.Packet, data: st.DataObject
) -> None:
    encoded = bytearray(protocol.encode(packet))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    _decodes_or_refuses(bytes(encoded))


@given(st.integers(0, 20), st.one_of(st.binary(max_size=24), st.binary(min_size=168, max_size=168)))
def test_a_right_header_does_not_excuse_the_body(number: int, body: bytes) -> None:
    _decodes_or_refuses(struct.pack("<IHHII", protocol.MAGIC, 1, number, 0, len(body)) + body)


def test_another_version_is_named_in_the_error() -> None:
    data = struct.pack("<IHHII", protocol.MAGIC, 2, 3, 0, 0)
    with pytest.raises(ProtocolError, match=r"not protocol 1: .* version 2"):
        protocol.decode(data)


def test_receive_names_the_sender() -> None:
    ours, theirs = wire.report_socketpair()
    with ours, theirs:
        theirs.send(protocol.encode(Started(2)))
        received = wire.receive(ours)
        assert received == (Started(2), protocol.COMMAND_PAYLOAD, os.getpid(), ())


def test_receive_returns_none_at_the_hang_up_but_not_before_the_report() -> None:
    ours, theirs = wire.report_socketpair()
    with ours:
        with theirs:
            theirs.send(protocol.encode(Started(2)))
            wire.send_signal(ours, signal.SIGTERM)  # left unread: a reset, not a plain end
        received = wire.receive(ours)
        assert received is not None
        assert received.packet == Started(2)
        assert wire.receive(ours) is None


def test_receive_keeps_no_descriptor_that_came_along() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for count in (1, 4, 40):
            socket.send_fds(theirs, [protocol.encode(Ready(0))], [ours.fileno()] * count)
            received = wire.receive(ours)
            assert received is not None
            assert received.packet == Ready(0)
            assert received.pid == 0
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("data", [b"x" * 5000, b"x", protocol.encode(End())])
def test_receive_refuses_what_is_no_report(data: bytes) -> None:
    ours, theirs = wire.report_socketpair()
    with ours, theirs:
        theirs.send(data)
        with pytest.raises(ProtocolError, match=r"^report socket: "):
            wire.receive(ours)


@pytest.mark.parametrize("given_names", [(), ("stdin",), ("stdout", "stderr"), ("stdin", "stderr")])
def test_go_carries_the_descriptors_in_the_order_of_the_flags(given_names: tuple[str, ...]) -> None:
    ours, theirs = wire.report_socketpair()
    read, write = os.pipe()
    by_name: dict[str, Any] = {"stdin": read, "stdout": write, "stderr": write}
    with ours, theirs, os.fdopen(read), os.fdopen(write):
        wire.send_go(ours, **{name: by_name[name] for name in given_names})
        data, fds, _, _ = socket.recv_fds(theirs, 100, 4)
        received = [os.fstat(fd).st_ino for fd in fds]
        for fd in fds:
            os.close(fd)
        assert received == [os.fstat(by_name[name]).st_ino for name in given_names]
    flags = GoFlag(0)
    for name in given_names:
        flags |= GoFlag[name.upper()]
    assert protocol.decode(data) == (Go(flags), protocol.COMMAND_PAYLOAD)


def test_an_order_to_an_init_that_is_gone_is_an_oserror_not_a_signal() -> None:
    ours, theirs = wire.report_socketpair()
    theirs.close()
    with ours:
        for send in (wire.send_go, wire.send_end):
            with pytest.raises(BrokenPipeError):
                send(ours)


def test_what_no_init_sends_is_every_order() -> None:
    assert set(get_args(protocol.Order)) == protocol.ORDERS


@pytest.mark.parametrize("flags", [GoFlag.STORED, GoFlag.CHANNEL, 2 * GoFlag.ENDS])
def test_go_has_none_of_the_flags_of_run(flags: int) -> None:
    with pytest.raises(ProtocolError, match="GO with flags"):
        protocol.decode(protocol.encode(Go(GoFlag(flags))))
