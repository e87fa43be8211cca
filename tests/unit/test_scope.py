"""enter_scope() where nobody gives one: sockets that refuse, hang, lie and go away.

A manager that gives one is in tests/vm.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jeepney import HeaderFields, Parser, new_error

from ocisbx.cgroup.scope import enter_scope, scope_name
from ocisbx.errors import CgroupError
from ocisbx.probe.cgroups import OWN_SCOPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WELCOME = b"OK 0123456789abcdef0123456789abcdef\r\n"


@pytest.fixture
def place() -> Iterator[str]:
    """A short path: an address of a socket has 108 bytes at most (unix(7))."""
    with tempfile.TemporaryDirectory(prefix="ocisbx-") as directory:
        yield f"{directory}/bus"


def refuse(path: str, timeout_s: float = 0.3) -> str:
    started = time.monotonic()
    with pytest.raises(CgroupError, match="gave us no cgroup") as raised:
        enter_scope([path], timeout_s)
    assert time.monotonic() - started < timeout_s + 10
    assert raised.value.remedy
    return raised.value.why


class Listener:
    """A socket whose one caller is `served`, on a thread."""

    def __init__(self, path: str, serve: Callable[[socket.socket], None]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen()
        self._serve = serve
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._thread.join(5)
        self._socket.close()

    def _accept(self) -> None:
        line, _ = self._socket.accept()
        with closing(line):
            self._serve(line)


def hang(line: socket.socket) -> None:
    while line.recv(4096):
        pass


def greet(line: socket.socket) -> bytes:
    """Up to the end of the authentication (D-Bus specification, "Authentication Protocol").

    Returns what came with it.
    """
    heard = b""
    while b"AUTH EXTERNAL" not in heard:
        heard += line.recv(4096)
    line.sendall(WELCOME)
    while b"BEGIN\r\n" not in heard:
        heard += line.recv(4096)
    return heard.partition(b"BEGIN\r\n")[2]


def greet_and_hang(line: socket.socket) -> None:
    greet(line)
    hang(line)


def greet_and_go(line: socket.socket) -> None:
    greet(line)


def reject(line: socket.socket) -> None:
    line.recv(4096)
    line.sendall(b"REJECTED\r\n")
    line.recv(4096)


def lie(line: socket.socket) -> None:
    greet(line)
    line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8)
    hang(line)


def send_garbage(line: socket.socket) -> None:
    """With a sound beginning: little endian, a reply, a body and fields that are none."""
    greet(line)
    line.sendall(b"l\2\1\1\4\0\0\0\1\0\0\0\10\0\0\0" + b"\377" * 64)
    hang(line)


def test_what_came_with_the_end_of_the_greeting_is_not_waited_for_in_vain(place: str) -> None:
    """systemd looks at it only when more has come (measured: 252)."""
    heard: list[Any] = []

    def look_when_more_comes(line: socket.socket) -> None:
        parser = Parser()
        parser.add_data(greet(line))
        while len(heard) < 2:
            parser.add_data(line.recv(4096))
            while (message := parser.get_next_message()) is not None:
                heard.append(message)
        answer = new_error(heard[0], "org.example.Seen")
        line.sendall(answer.serialise(serial=1))
        hang(line)

    private = os.path.join(os.path.dirname(place), "systemd", "private")
    os.mkdir(os.path.dirname(private))
    with Listener(private, look_when_more_comes):
        why = refuse(private, timeout_s=10)
    assert why == f"{private}: Subscribe: org.example.Seen"
    assert heard[1].header.fields[HeaderFields.member] == "Ping"


def test_no_socket(place: str) -> None:
    with pytest.raises(CgroupError, match="no socket of it is there"):
        enter_scope([])
    assert refuse(place) == f"{place}: no such file or directory"


def test_nobody_listens(place: str) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(place)
    assert refuse(place) == f"{place}: connection refused"


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (hang, "no answer within 0.3 s"),
        (greet_and_hang, "no answer within 0.3 s"),
        (greet_and_go, "it went away meanwhile"),
        (reject, "REJECTED"),
        (lie, "no D-Bus"),
        (send_garbage, "no D-Bus"),
    ],
)
def test_what_the_other_side_does(
    place: str, serve: Callable[[socket.socket], None], words: str
) -> None:
    with Listener(place, serve):
        why = refuse(place, timeout_s=0.3 if "0.3 s" in words else 10)
    assert why.startswith(f"{place}: ")
    assert words in why


def test_all_that_failed_are_named(place: str) -> None:
    with pytest.raises(CgroupError) as raised:
        enter_scope([place, f"{place}2"], 1)
    assert raised.value.why.count("no such file") == 2


def test_names_are_known_again() -> None:
    names = {scope_name() for _ in range(100)}
    assert len(names) == 100
    assert all(OWN_SCOPE.fullmatch(name) and str(os.getpid()) in name for name in names)


@given(st.text(max_size=200))
def test_any_path_is_an_error(path: str) -> None:
    with pytest.raises(CgroupError):
        enter_scope([f"/nonexistent/{path}"], 1)
