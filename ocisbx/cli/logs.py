"""`ocisbx logs`: what containers in the background print."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from ocisbx.background.times import STREAMS, offsets_since, read_times
from ocisbx.bundle.record import State, boot_s
from ocisbx.capture import ForwardSink, read_at, tail
from ocisbx.cli.containers import find
from ocisbx.cli.options import Option, Syntax, parse, wants_help
from ocisbx.command import LOOK_S
from ocisbx.errors import ConfigError
from ocisbx.probe.processes import boot_id
from ocisbx.values import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.background.container import Container

LOGS = Syntax(
    "ocisbx logs [-f] [--tail N] [--since TIME] ID|NAME",
    "Print what a container in the background has printed so far: its stdout to\n"
    "stdout, its stderr to stderr; each in order, up to the cap of --max-output.",
    (
        Option(("-f", "--follow"), "flag", "", "go on until it ends"),
        Option(("--tail",), "one", "N", "only the last N lines of each"),
        Option(("--since",), "one", "TIME", "10m, 1h30m or 2026-01-31T12:00:00Z; to the second"),
    ),
    ("ocisbx logs --tail 20 build", "ocisbx logs -f --since 10m build"),
)
FOLLOW_S = 0.05
BLOCK_BYTES = 1 << 18
DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
DESCRIPTORS = dict(zip(STREAMS, (1, 2), strict=True))


def logs_main(arguments: list[str]) -> int:
    """Print captures."""
    parsed = parse(LOGS, arguments)
    if wants_help(LOGS, parsed):
        return 0
    container = find(one_word(LOGS, parsed.words))
    lines = _count(parsed.options["tail"]) if "tail" in parsed.options else None
    offsets = dict.fromkeys(STREAMS, 0)
    if "since" in parsed.options:
        offsets = _since(container, parsed.options["since"])
    follow = "follow" in parsed.options
    show(container, _last(container, offsets, lines), follow=follow)
    return 0


def one_word(syntax: Syntax, words: list[str]) -> str:
    """The ID or NAME. Raises ConfigError: there is none, or more."""
    if len(words) != 1:
        raise ConfigError("one ID or NAME expected", remedy=f"usage: {syntax.usage}")
    return words[0]


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise refusal(text, "a number of lines", "expected 0 to 999999999", remedy="--tail 20")
    return int(text)


def _size(container: Container, stream: str) -> int:
    try:
        return os.stat(container.log_path(stream)).st_size
    except FileNotFoundError:
        return 0


def sizes(container: Container) -> dict[str, int]:
    """How much was captured so far."""
    return {name: _size(container, name) for name in STREAMS}


def _last(container: Container, offsets: dict[str, int], lines: int | None) -> dict[str, int]:
    """Where the last lines begin, none of them before `offsets`."""
    if lines is None:
        return offsets
    begin = {}
    for stream, offset in offsets.items():
        path = container.log_path(stream)
        size = _size(container, stream)
        kept = len(tail(path, lines=lines)) if size else 0
        begin[stream] = max(offset, size - kept)
    return begin


def show(
    container: Container,
    offsets: dict[str, int],
    *,
    follow: bool,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Print both captures from these offsets on; `follow`: until the container's end, with a
    `pause` of at most so many seconds after each turn, 0 where something came.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    sinks = {stream: ForwardSink(DESCRIPTORS[stream]) for stream in STREAMS}
    while True:
        ended = container.state in (State.EXITED, State.LOST)
        came = False
        for stream, sink in sinks.items():
            size = _size(container, stream)
            while offsets[stream] < size:
                data = read_at(
                    container.log_path(stream),
                    offsets[stream],
                    min(BLOCK_BYTES, size - offsets[stream]),
                )
                _write(sink, data)
                offsets[stream] += len(data)
                came = True
                if follow:
                    # Each its turn: what comes without a break keeps nobody from typing.
                    break
        if not follow or (ended and not came):
            return
        pause(0 if came else FOLLOW_S)


def _write(sink: ForwardSink, data: bytes) -> None:
    import select  # noqa: PLC0415 -- beside the function of this module's callers

    sink.write(memoryview(data))
    while (watched := sink.watch()) is not None:
        poller = select.poll()
        poller.register(*watched)
        poller.poll(LOOK_S * 1000)
        sink.flush()
    if sink.broken:
        raise BrokenPipeError


def _since(container: Container, text: str) -> dict[str, int]:
    """Where what was captured since then begins."""
    moment_s = since_boot_s(container, text)
    if moment_s is None:
        return dict.fromkeys(STREAMS, 0)
    found = offsets_since(read_times(container.record.path), moment_s)
    return found or sizes(container)


def since_boot_s(container: Container, text: str) -> float | None:
    """The moment on the clock of the container's boot; None: before it was created.

    Durations are counted by that clock, which nobody can set; a time of day by what the clock of
    the host said when the container was created. Raises ConfigError.
    """
    import datetime  # noqa: PLC0415 -- 1 ms, for those who ask only

    record = container.record
    found = DURATION.fullmatch(text) if text else None
    created = datetime.datetime.fromisoformat(record.created_at)
    if found is not None:
        days, hours, minutes, seconds = (int(one or 0) for one in found.groups())
        ago_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if record.supervisor.boot_id == boot_id():
            return boot_s() - ago_s
        at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=min(ago_s, 1e9))
    else:
        try:
            at = datetime.datetime.fromisoformat(text)
        except ValueError:
            expected = "expected a duration or a time"
            remedy = "--since 10m, --since 2026-01-31T12:00:00Z"
            raise refusal(text, "a time", expected, remedy=remedy) from None
        at = at if at.tzinfo is not None else at.astimezone()
    since_s = (at - created).total_seconds()
    return None if since_s < 0 else record.created_boot_s + since_s
