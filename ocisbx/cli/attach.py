"""`ocisbx attach`: a person's terminal at a container in the background, until they detach."""

from __future__ import annotations

import os
import select

from ocisbx.backends.live import live_owners
from ocisbx.background.attached import Attached
from ocisbx.background.container import Container
from ocisbx.bundle.record import State
from ocisbx.cli.containers import find, tell_end
from ocisbx.cli.logs import one_word, show, sizes
from ocisbx.cli.options import Option, Syntax, parse, wants_help
from ocisbx.cli.output import printable, say
from ocisbx.cli.relay import READ_BYTES, Parting, Relay
from ocisbx.cli.run import Interrupts
from ocisbx.errors import ConfigError, InvalidState
from ocisbx.terminal.detach import DEFAULT_KEYS, DetachKeys
from ocisbx.terminal.local import STDIN, STDOUT, size_of

ATTACH = Syntax(
    "ocisbx attach [--detach-keys KEYS] [--no-stdin] ID|NAME",
    "Sit down at a container in the background: see what it prints from now on, and\n"
    "type where it has a terminal (run -d -t) or was started with -i at one. Several\n"
    "may at once. Exit codes as `run`; 0 when you detach: the container goes on.",
    (
        Option(("--detach-keys",), "one", "KEYS", f"by which you leave ({DEFAULT_KEYS})"),
        Option(("--no-stdin",), "flag", "", "type nothing; Ctrl-C leaves"),
    ),
    ("ocisbx run -d -t --name work -- bash", "ocisbx attach work"),
)


def attach_main(arguments: list[str]) -> int:
    """Relay until the end, and end as the payload does; or until they detach."""
    parsed = parse(ATTACH, arguments)
    if wants_help(ATTACH, parsed):
        return 0
    keys = DetachKeys(parsed.options.get("detach-keys", DEFAULT_KEYS))
    types = "no-stdin" not in parsed.options
    given = one_word(ATTACH, parsed.words)
    try:
        container = Container.find(given)
    except ConfigError:
        return _help_out(given, keys, types=types)
    if (state := container.state) is not State.RUNNING:
        raise InvalidState(
            f"{given} is not running: it is {state.value}",
            remedy="ocisbx logs shows what it has printed",
        )
    with Interrupts():
        parting = _attach(container, keys, types=types)
    if parting is not Parting.ENDED:
        return 0
    result = container.wait()
    assert result is not None
    tell_end(result)
    return result.shell_exit_code


def _help_out(given: str, keys: DetachKeys, *, types: bool) -> int:
    """Be the person for whom a script waits, in the foreground of another process.

    Raises:
        InvalidState: it waits for nobody.
        ConfigError: there is no such container.
    """
    container_id = next((one.id for one in live_owners() if given in (one.id, one.name)), None)
    if container_id is not None and not types:
        raise ConfigError(
            "--no-stdin: what waits here is a script, for somebody who types",
            remedy=f"ocisbx attach {printable(given)}",
        )
    told, attached = (
        ({}, None) if container_id is None else Attached.to(container_id, size_of(STDOUT))
    )
    if attached is None:
        # Says what it is, and what to do.
        find(given)
        raise InvalidState(f"{given} has just ended")
    say(f"ocisbx: {printable(str(told['message']))}\n  {keys.text} when it is done")
    with Interrupts(), attached:
        relay = Relay(attached, keys, types=types)
        if relay.run() is Parting.ENDED:
            say(printable(f"ocisbx: {relay.message or 'the script was ended'}"))
    return 0


def _attach(container: Container, keys: DetachKeys, *, types: bool) -> Parting:
    offsets = sizes(container)
    told, attached = Attached.to(container.id, size_of(STDOUT))
    if attached is None:
        show(container, offsets, follow=True)
        return Parting.ENDED
    with attached:
        if not told["terminal"]:
            feeder = _Feeder(attached, types=types)
            show(container, offsets, follow=True, pause=feeder.pause)
            return Parting.ENDED
        parting = Relay(attached, keys, types=types).run()
    if parting is Parting.DETACHED:
        say(f"ocisbx: detached, {printable(container.name or container.id)} goes on")
    return parting


class _Feeder:
    """Passes on the caller's input, while something else shows what is printed."""

    def __init__(self, attached: Attached, *, types: bool) -> None:
        self._attached = attached
        self._types = types

    def pause(self, patience_s: float) -> None:
        """Wait for some, at most so long."""
        poller = select.poll()
        if self._types and self._attached.has_room:
            poller.register(STDIN, select.POLLIN)
        if not self._attached.has_room:
            poller.register(self._attached, select.POLLOUT)
        if poller.poll(patience_s * 1000) and self._types and self._attached.has_room:
            try:
                data = os.read(STDIN, READ_BYTES)
            except OSError:
                # Closed, or a terminal that was hung up.
                data = b""
            self._types = bool(data)
            self._attached.type(data)
        self._attached.flush()
