"""Interpreters that have started and imported before the call; see ocisbx-pool(1)."""

from __future__ import annotations

import json
import os
import re
import select
import time
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import ConfigError, RuntimeFailed
from ocisbx.pool.interpreters import INTERPRETERS
from ocisbx.values import check_command, show

if TYPE_CHECKING:
    from collections.abc import Sequence

READY = re.compile(rb"^ocisbx-ready(?: (\d{1,15}) (\d{1,15}))?\n", re.MULTILINE)
GREETING_LIMIT_BYTES = 1 << 16
# pipe(7): so much arrives at once (PIPE_BUF).
BLOCK_BYTES = 4096
# At most: the size in digits, and the end of the line.
HEAD_BYTES = 20
MODULE = re.compile(r"[^\W\d][\w.]*|[\w@./-]+")


class Warm(NamedTuple):
    """What is started in a container ahead of its call."""

    argv: tuple[str, ...]
    # What a call's result names before the code; as `python3 -c`.
    shown: tuple[str, ...]


class Spent(NamedTuple):
    """Processor time before the hand-over, in microseconds."""

    user_usec: int = 0
    system_usec: int = 0


class Ends(NamedTuple):
    """The driver's ends of the pipes of what was started; `stderr` None: it is stdout."""

    stdin: int
    stdout: int
    stderr: int | None

    def close(self) -> None:
        for descriptor in self:
            if descriptor is not None:
                os.close(descriptor)


def warm_command(warm: str | Sequence[str], imports: Sequence[str]) -> Warm:
    """What `warm` and `warm_imports` of a pool mean.

    Raises:
        ConfigError: no interpreter that is known, no command, no names of modules.
    """
    names = [""] if isinstance(imports, str) else [str(name) for name in imports]
    if not all(MODULE.fullmatch(name) for name in names):
        raise ConfigError(
            f"{imports!r} are no modules", remedy="a list of names: warm_imports=['json', 're']"
        )
    if not isinstance(warm, str):
        if imports:
            what = "warm_imports are for interpreters that ocisbx knows"
            raise ConfigError(what, remedy="give them as arguments of the command")
        argv = check_command(warm)
        return Warm(argv, argv)
    name = os.path.basename(warm)
    known = next((known for known in INTERPRETERS if name.startswith(known)), None)
    if known is None:
        raise ConfigError(
            f"{show(warm)} is no interpreter that can wait",
            remedy=f"one of {', '.join(INTERPRETERS)}, or a command that speaks the handshake of "
            "ocisbx-pool(1), as a list",
        )
    option, bootstrap = INTERPRETERS[known]
    end = ("--",) if known == "node" else ()
    return Warm((warm, option, bootstrap, *end, *imports), (warm, option))


def letter(
    code: str, arguments: Sequence[str], environment: Sequence[str], directory: str
) -> bytes:
    """What is sent before the call's own input: whole blocks, so that it can be read without a look
    at its head first."""
    text = json.dumps(
        {
            "code": code,
            "arguments": list(arguments),
            "environment": dict(line.split("=", 1) for line in environment),
            "directory": directory,
        },
        ensure_ascii=False,
    ).encode()
    whole_bytes = -(-(len(text) + HEAD_BYTES) // BLOCK_BYTES) * BLOCK_BYTES
    head = b"%d\n" % (whole_bytes - len(str(whole_bytes)) - 1)
    return head + text.ljust(whole_bytes - len(head))


class Greeting:
    """What was started says that it is ready."""

    def __init__(self, stdout: int) -> None:
        self._stdout = stdout
        self._said = b""
        self.spent: Spent | None = None

    def listen(self, others: Sequence[int], until: float) -> None:
        """Hear more of it, or that one of the others has something to say.

        Raises:
            RuntimeFailed: the time is over.
        """
        poller = select.poll()
        for descriptor in (self._stdout, *others):
            poller.register(descriptor, select.POLLIN)
        left_s = until - time.monotonic()
        came = [descriptor for descriptor, _ in poller.poll(max(0.0, left_s) * 1000)]
        if left_s <= 0 or not came:
            raise RuntimeFailed(
                "the interpreter of this pool did not get ready in time",
                why="what it imports takes too long, or it does not speak the handshake",
                remedy="import less, or give more time with start_timeout_s",
            )
        if self._stdout in came and self.spent is None:
            self._said = (self._said + os.read(self._stdout, 4096))[-GREETING_LIMIT_BYTES:]
            if (found := READY.search(self._said)) is not None:
                self.spent = Spent(*map(int, filter(None, found.groups())))
