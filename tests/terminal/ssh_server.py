"""A server of ssh that gives terminals, as an ordinary user: sshd cannot give one its owner then.

ssh_server.py DIRECTORY: on a port of the loopback, which it writes to `port` there once it listens,
with `host_key` and for `authorized_keys` of there. A command that was asked for together with a
terminal gets one as sshd's do: it leads a session on it, the window's size is followed, and a
connection that is gone hangs up. Its exit code is added to `ended`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import sys
import termios
from pathlib import Path

import asyncssh

from tests.terminal.seat import sit_down

READ_BYTES = 65536


def resize(fd: int, columns: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


async def pass_typed(process: asyncssh.SSHServerProcess[bytes], fd: int) -> None:
    """Until the client is gone."""
    while True:
        try:
            data = await process.stdin.read(READ_BYTES)
        except asyncssh.TerminalSizeChanged as change:
            resize(fd, change.width, change.height)
            continue
        except asyncssh.Error:
            return
        if not data:
            return
        os.write(fd, data)


async def pass_shown(process: asyncssh.SSHServerProcess[bytes], fd: int) -> None:
    """Until nobody has the terminal open."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def show() -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(fd, READ_BYTES)
        if data:
            process.stdout.write(data)
        else:
            over.set()

    loop.add_reader(fd, show)
    try:
        await over.wait()
    finally:
        loop.remove_reader(fd)


async def sit(process: asyncssh.SSHServerProcess[bytes], directory: Path) -> None:
    """One session."""
    controller_fd, terminal_fd = os.openpty()
    resize(controller_fd, *process.term_size[:2])
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec {process.command}", stdin=terminal_fd, stdout=terminal_fd,
        stderr=terminal_fd, env={**os.environ, "TERM": process.term_type or ""},
        preexec_fn=sit_down,
    )  # fmt: skip
    os.close(terminal_fd)
    tasks = [
        asyncio.create_task(carry(process, controller_fd)) for carry in (pass_typed, pass_shown)
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    os.close(controller_fd)
    code = await child.wait()
    with (directory / "ended").open("a") as ended:
        ended.write(f"{code}\n")
    process.exit(code)


async def serve(directory: Path) -> None:
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[directory / "host_key"],
        authorized_client_keys=str(directory / "authorized_keys"),
        process_factory=lambda process: sit(process, directory),
        encoding=None,
        line_editor=False,
    )
    draft = directory / "port.new"
    draft.write_text(str(server.get_port()))
    draft.rename(directory / "port")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
