"""A person who came over ssh: their terminal is one that an ssh server made for them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import asyncssh
import pytest

from ocisbx import Container
from tests.command_line import environment, ocisbx
from tests.terminal.conftest import of_each_name
from tests.terminal.driving import eventually
from tests.terminal.seat import Seat
from tests.terminal.test_attach import DETACH, SHELL, shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]
OPTIONS = {
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "GlobalKnownHostsFile": "/dev/null",
    "IdentitiesOnly": "yes",
    "IdentityAgent": "none",
    "EscapeChar": "none",
    "LogLevel": "ERROR",
}


class Door:
    """A server of ssh on this machine, for who has the key in its directory."""

    def __init__(self, yard: Box, directory: Path) -> None:
        self._yard = yard
        self._directory = directory

    def sit(self, *arguments: str) -> Seat:
        """A person at a terminal of theirs, with ssh as the program that runs on it."""
        port = (self._directory / "port").read_text()
        settings = [word for key, value in OPTIONS.items() for word in ("-o", f"{key}={value}")]
        command = [
            "ssh", "-tt", "-F", "none", *settings, "-i", str(self._directory / "key"),
            "-p", port, "127.0.0.1",
        ]  # fmt: skip
        return Seat(self._yard, *arguments, carrier=lambda line: [*command, line])

    def ended(self) -> list[int]:
        """The exit codes of what ran there and has ended."""
        path = self._directory / "ended"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def make_key(path: Path) -> asyncssh.SSHKey:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(path)
    path.chmod(0o600)
    return key


@contextlib.contextmanager
def serving(yard: Box, directory: Path) -> Iterator[Door]:
    directory.mkdir()
    make_key(directory / "host_key")
    make_key(directory / "key").write_public_key(directory / "authorized_keys")
    command = [sys.executable, "-P", "-m", "tests.terminal.ssh_server", str(directory)]
    with subprocess.Popen(command, env=environment(yard)) as server:
        try:
            assert eventually((directory / "port").exists)
            yield Door(yard, directory)
        finally:
            server.terminate()


@pytest.fixture
def door(yard: Box) -> Iterator[Door]:
    with serving(yard, yard.base / "ssh") as made:
        yield made


def run(yard: Box, *command: str) -> tuple[str, ...]:
    return ("run", "-it", "--workspace", str(yard.workspace), "--", *command)


def test_keys_sizes_and_signals_pass(yard: Box, door: Door) -> None:
    with door.sit(*run(yard, *SHELL)) as seat:
        seat.wait_for(b"$ ")
        seat.type("stty size; echo $TERM a$((1+1))b\r")
        seat.wait_for(b"30 90\r\nvt220 a2b\r\n")
        seat.wait_for(b"$ ")
        seat.resize(41, 141)
        seat.type("until [ \"$(stty size)\" = '41 141' ]; do sleep 0.05; done; stty size\r")
        seat.wait_for(b"\r\n41 141\r\n")
        seat.wait_for(b"$ ")
        seat.type("sleep 60\r")
        time.sleep(0.5)
        seat.type(b"\x03")
        seat.wait_for(b"$ ")
        seat.type("exit 7\r")
        assert seat.drain_until_end() == 7
        assert seat.is_as_before
    assert door.ended() == [7]


def test_who_came_over_ssh_detaches_and_comes_back(yard: Box, door: Door) -> None:
    container = shell(yard)
    with door.sit("attach", "it") as seat:
        seat.wait_for(b"$ ")
        seat.type("x=here\r")
        seat.wait_for(b"$ ")
        seat.type(DETACH)
        assert seat.drain_until_end() == 0
        assert b"ocisbx: detached, it goes on" in seat.shown
        assert seat.is_as_before
    assert container.state == "running"
    with door.sit("attach", "it") as seat:
        seat.wait_for(b"$ ")
        seat.resize(41, 141)
        seat.type("until [ \"$(stty size)\" = '41 141' ]; do sleep 0.05; done; echo $x-$((1))\r")
        seat.wait_for(b"here-1\r\n")
        seat.type("exit 6\r")
        assert seat.drain_until_end() == 6


def test_a_lost_connection_ends_what_ran_in_it(yard: Box, door: Door) -> None:
    with door.sit(*run(yard, "sh", "-c", "echo up; exec sleep 1000")) as seat:
        seat.wait_for(b"up\r\n")
        assert yard.left()
        seat.kill(signal.SIGKILL)
        seat.process.wait()
        assert eventually(door.ended), "it goes on"
        assert door.ended() == [130]
    assert yard.left() == []


def test_a_lost_connection_leaves_what_is_in_the_background(yard: Box, door: Door) -> None:
    container = shell(yard)
    with door.sit("attach", "it") as seat:
        seat.wait_for(b"$ ")
        seat.type("x=still\r")
        seat.wait_for(b"$ ")
        seat.kill(signal.SIGKILL)
        seat.process.wait()
        assert eventually(door.ended)
        assert door.ended() == [130]
    assert container.state == "running"
    assert ocisbx(yard, "attach", "it", input="echo $x-$((1)); exit 3\n").returncode == 3
    assert b"still-1\r\n" in Container.find("it").logs()
