"""ssh: keys and logins, on real servers, proven by what was done there."""

from __future__ import annotations

import getpass
import shlex
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh
import pytest

from tests.box import eventually
from tests.recipes.conftest import HOSTED
from tests.recipes.cookbook import last
from tests.recipes.servers import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocisbx.host import RuntimeBinary
    from tests.recipes.cookbook import Cookbook

pytestmark = pytest.mark.runtime

PASSWORD, PASSPHRASE = "sesame opens", "a rather long one"
# In the workspace, which is the current directory: names of sockets are short.
SOCKET = "ssh.sock"
SERVER = Path(__file__).with_name("ssh_server.py")
CONFIG = """\
Host server
  User {user}
  {way}
  IdentityFile id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile known_hosts
"""
SSHD = """\
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
ForceCommand cd {directory} && eval "$SSH_ORIGINAL_COMMAND"
"""


class Server:
    """What a server has in its directory, and who was there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(directory / "host_key")
        (directory / "host_key").chmod(0o600)
        (directory / "password").write_text(PASSWORD)
        self.known = ("--param", f"fingerprint={key.get_fingerprint()}")

    def secrets(self, **others: str) -> dict[str, str]:
        """What the recipe has to know, or `others` instead."""
        return {"SSH_PASSWORD": PASSWORD, "KEY_PASSPHRASE": PASSPHRASE, **others}

    def visitor(self) -> str | None:
        """As whom the recipe's command ran; None: it did not."""
        path = self.directory / "was-here"
        return path.read_text().strip() if path.exists() else None


def make_key(workspace: Path, server: Server) -> None:
    """A pair in the workspace, for the server."""
    path = workspace / "id_ed25519"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-a", "1", "-N", PASSPHRASE]
    subprocess.run([*command, "-f", str(path)], check=True)
    shutil.copy(f"{path}.pub", server.directory / "authorized_keys")


def configure(cookbook: Cookbook, way: str, user: str = "ada") -> None:
    """The page's ssh_config."""
    text = CONFIG.format(user=user, way=way)
    (cookbook.workspace / "ssh_config").write_text(text)


@contextmanager
def asyncssh_server(directory: Path) -> Iterator[None]:
    """On a socket in the workspace."""
    (directory / "is-up").unlink(missing_ok=True)
    with subprocess.Popen([sys.executable, "-P", SERVER, directory, SOCKET]) as process:
        try:
            assert eventually((directory / "is-up").exists)
            yield
        finally:
            process.terminate()


@contextmanager
def sshd_server(directory: Path) -> Iterator[None]:
    """sshd as whoever runs the tests, one for each connection to the socket."""
    config = directory / "sshd_config"
    config.write_text(SSHD.format(directory=directory))
    sshd, environment = program("sshd")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            command = [sshd, "-i", "-e", "-f", str(config)]
            with (directory / "log").open("ab") as log:
                streams = {"stdin": self.request, "stdout": self.request, "stderr": log}
                subprocess.run(command, check=False, env=environment, **streams)

    with socketserver.ThreadingUnixStreamServer(SOCKET, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_key(cookbook: Cookbook) -> None:
    known = {"KEY_PASSPHRASE": PASSPHRASE}
    report = cookbook.cook("ssh-keygen", secrets=known)
    assert report["outcome"] == "ok", last(report)
    assert opens(cookbook.workspace / "id_ed25519", PASSPHRASE)
    assert not opens(cookbook.workspace / "id_ed25519", "another")
    report = cookbook.cook("ssh-keygen", secrets=known)
    assert report["message"] == "there is a key already"


def opens(key: Path, passphrase: str) -> bool:
    """Whether ssh-keygen reads the private key, and it is that of the public one."""
    command = ["ssh-keygen", "-y", "-P", passphrase, "-f", str(key)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    public = key.with_suffix(".pub").read_text()
    return done.returncode == 0 and done.stdout.split()[:2] == public.split()[:2]


def typed(report: dict[str, Any]) -> int:
    return sum(step["typed"] for step in report["steps"])


@pytest.fixture
def server(cookbook: Cookbook) -> Server:
    return Server(cookbook.box.base / "server")


class TestOnASocket:
    """In the workspace: gVisor shows no socket of the host's."""

    @pytest.fixture(params=HOSTED, ids=[found.name for found in HOSTED])
    def runtime(self, request: pytest.FixtureRequest) -> RuntimeBinary:
        found: RuntimeBinary = request.param
        return found

    def test_a_key_with_a_passphrase(self, cookbook: Cookbook, server: Server) -> None:
        make_key(cookbook.workspace, server)
        configure(cookbook, "ProxyCommand nc -U ssh.sock", getpass.getuser())
        with sshd_server(server.directory):
            wrong = server.secrets(KEY_PASSPHRASE="another")
            report = cookbook.cook("ssh", *server.known, secrets=wrong)
            assert report["message"] == "Permission denied (publickey)", last(report)
            # The host's key, and three times the passphrase.
            assert typed(report) == 4
            assert server.visitor() is None
            # The host's key is known by now.
            report = cookbook.cook("ssh", *server.known, secrets=server.secrets())
        assert report["outcome"] == "ok", last(report)
        assert typed(report) == 1
        assert server.visitor() == getpass.getuser()

    def test_a_password(self, cookbook: Cookbook, server: Server) -> None:
        configure(cookbook, "ProxyCommand nc -U ssh.sock")
        with asyncssh_server(server.directory):
            other = ("--param", "fingerprint=SHA256:" + 43 * "A")
            report = cookbook.cook("ssh", *other, secrets=server.secrets())
            assert report["message"] == "the server has another key", last(report)
            report = cookbook.cook(
                "ssh", *server.known, secrets=server.secrets(SSH_PASSWORD="open, please")
            )
            assert report["message"].startswith("Permission denied ("), last(report)
            assert typed(report) == 4
            assert server.visitor() is None
            report = cookbook.cook("ssh", *server.known, secrets=server.secrets())
        assert report["outcome"] == "ok", last(report)
        assert server.visitor() == getpass.getuser()

    def test_nobody_listens(self, cookbook: Cookbook, server: Server) -> None:
        configure(cookbook, "ProxyCommand nc -U ssh.sock")
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("ssh.sock")
        report = cookbook.cook("ssh", *server.known, secrets=server.secrets())
        assert report["message"] == "Connection refused", last(report)


def test_on_the_loopback(cookbook: Cookbook, server: Server) -> None:
    """A server inside, as on every runtime it can be."""
    configure(cookbook, "HostName 127.0.0.1\n  Port 2222")
    report = cookbook.cook("ssh", *server.known, secrets=server.secrets())
    assert report["message"] == "Connection refused", last(report)
    directory = shutil.copytree(server.directory, cookbook.workspace / "server")
    serving = shlex.join([sys.executable, "-P", f"{shutil.copy(SERVER, directory)}", "server"])
    inside = f"{serving} 2222 & until [ -e server/is-up ]; do sleep 0.05; done; exec "
    line = inside + shlex.join(cookbook.command("ssh"))
    tools = ("-v", f"{sys.prefix}:ro", "--", "sh", "-c", line)
    report = cookbook.cook("ssh", *server.known, *tools, secrets=server.secrets())
    assert report["outcome"] == "ok", last(report)
    assert (directory / "was-here").read_text() == "root\n"
