"""psql: statements to a real server, proven by what its tables hold."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.box import eventually
from tests.recipes.cookbook import last
from tests.recipes.servers import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.recipes.cookbook import Cookbook

pytestmark = pytest.mark.runtime

PASSWORD = "sesame opens"
# A port that is free may be taken before the server has it.
ATTEMPTS = 5


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@contextmanager
def postgres(directory: Path, sockets: Path) -> Iterator[int]:
    """A server with one user, who has a password; its port."""
    server, environment = program("postgres")
    password = directory / "password"
    password.write_text(PASSWORD)
    data = directory / "data"
    initdb = [f"{Path(server).with_name('initdb')}", "--no-sync", "-U", "ada", "-D", str(data)]
    initdb += ["--auth", "scram-sha-256", "--pwfile", str(password)]
    subprocess.run(initdb, check=True, env=environment, stdout=subprocess.DEVNULL)
    # The name of a socket is short: from the directory of the data, where the server is.
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": os.path.relpath(sockets, data),
        "fsync": "off",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [server, "-D", str(data), *options]
    for _ in range(ATTEMPTS):
        # Other tests have servers of their own at the same time.
        port = free_port()
        with serving([*command, "-c", f"port={port}"], environment, directory / "log") as is_up:
            if is_up:
                yield port
                return
    raise AssertionError((directory / "log").read_text())


@contextmanager
def serving(command: list[str], environment: dict[str, str], path: Path) -> Iterator[bool]:
    """Whether this server takes statements; else its port was somebody else's by then."""

    def is_up() -> bool:
        # Before it says so it refuses whoever finds its socket.
        return b"ready to accept connections" in path.read_bytes()

    with (
        path.open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            assert eventually(lambda: is_up() or process.poll() is not None), path.read_text()
            yield is_up()
        finally:
            process.terminate()


def ask(port: int, question: str) -> str:
    """The host's psql."""
    words = ("-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "ada", "-d", "postgres")
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    command = ["psql", *words, "-c", question]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return done.stdout


def test_statements(cookbook: Cookbook) -> None:
    sockets = cookbook.workspace / "run"
    directory = cookbook.box.base / "server"
    sockets.mkdir()
    directory.mkdir()
    gvisor = cookbook.box.runtime.name == "runsc"
    with postgres(directory, sockets) as port:
        command = [*cookbook.command("psql"), "-p", str(port)]
        words = ["--", *command]
        if gvisor:
            # It shows no sockets of the host's.
            command[command.index("/run/postgresql")] = "127.0.0.1"
            words = ["--network", "host", "--", *command]
        report = cookbook.cook("psql", *words, secrets={"PGPASSWORD": "open, please"})
        assert "password authentication failed" in report["message"], last(report)
        report = cookbook.cook("psql", *words, secrets={"PGPASSWORD": PASSWORD})
        assert report["outcome"] == "ok", last(report)
        assert next(s["groups"] for s in report["steps"] if s["name"] == "the count") == ["2"]
        assert ask(port, "select who from visits") == "Ada\nGrace\n"
        report = cookbook.cook("psql", *words, secrets={"PGPASSWORD": PASSWORD})
        assert report["message"] == 'relation "visits" already exists', last(report)
