"""A server of ssh that checks passwords, which sshd cannot do without root; by asyncssh.

ssh_server.py DIRECTORY ADDRESS: on the socket, or the port of the loopback, ADDRESS. In DIRECTORY
are its `host_key`, the `password` of everybody and the `authorized_keys`, where there are such;
commands are carried out there.
"""

import asyncio
import socket
import sys
from pathlib import Path

import asyncssh


class Server(asyncssh.SSHServer):
    """Lets in who knows the password."""

    directory: Path

    def password_auth_supported(self) -> bool:
        return (self.directory / "password").exists()

    def validate_password(self, username: str, password: str) -> bool:
        return password == (self.directory / "password").read_text()


async def carry_out(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """One command in the server's directory."""
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", process.command or "exit 1", cwd=Server.directory,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await child.communicate()
    process.stdout.write(output)
    process.exit(child.returncode or 0)


async def serve(directory: Path, address: str) -> None:
    Server.directory = directory
    keys = directory / "authorized_keys"
    if address.isdigit():
        listening = socket.create_server(("127.0.0.1", int(address)))
    else:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address)
    await asyncssh.listen(
        sock=listening,
        server_factory=Server,
        server_host_keys=[directory / "host_key"],
        authorized_client_keys=str(keys) if keys.exists() else None,
        kbdint_auth=False,
        process_factory=carry_out,
        encoding=None,
    )
    (directory / "is-up").touch()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
