"""The caller's part of a container in the background: it starts the supervisor, and hears it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.gc import sweep
from ocisbx.backends.oci import new_id
from ocisbx.background.packets import error_of
from ocisbx.background.request import (
    CALLER_FD,
    PARENT_FD,
    STDIN_FD,
    TRANSCRIPT_FD,
    Request,
    read_lines,
    send_request,
)
from ocisbx.calls import choose_again, launch_with_less
from ocisbx.cgroup.files import controllers_of
from ocisbx.cgroup.place import settle
from ocisbx.command import ENVIRONMENT, SpawnError, spawn
from ocisbx.errors import CgroupError, OcisbxError, RuntimeFailed, Unsupported
from ocisbx.places import ensure, find_places
from ocisbx.quirks import find_quirks
from ocisbx.result import Captured, RunResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.backends.base import Call
    from ocisbx.calls import Renewal
    from ocisbx.command import Child
    from ocisbx.plan import Plan

# What of the caller's environment decides where things are and what may run.
HANDED_ON = (
    "HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "DBUS_SESSION_BUS_ADDRESS",
    "OCISBX_MAX_SANDBOXES",
)  # fmt: skip
# What is large goes back to the system when it is free (mallopt(3)): to read a plan takes many
# times its size. And functions are found when the interpreter starts (ld.so(8)): to look for them
# one by one maps 0.6 MiB of names, after the fork that sheds what starting took.
THRIFTY = {
    "MALLOC_MMAP_THRESHOLD_": "16384",
    "MALLOC_TRIM_THRESHOLD_": "16384",
    "LD_BIND_NOW": "1",
}
HERE = os.path.dirname(os.path.abspath(__file__))
BOOT = f"{HERE}/boot.py"
# The directory that holds the package.
HOME = os.path.dirname(os.path.dirname(HERE))


class Options(NamedTuple):
    """How a container is brought into the background. `start`: at once, else it is created only.
    `parent`: a pidfd of the process whose end ends it; `idle_s`, `lifetime_s`,
    `parent_id`: of a session; `keyboard`: its input are those who attach; `transcript`: a file for
    that of its terminal; `tell` is told what takes long."""

    start: bool
    audit: bool = True
    resolve_s: float = 0.0
    parent: int | None = None
    idle_s: float | None = None
    lifetime_s: float | None = None
    parent_id: str = ""
    keyboard: bool = False
    transcript: int | None = None
    tell: Callable[[str], None] = lambda _: None


class NeverRan(NamedTuple):
    """What was to be started at once ended before its payload ran: nothing is left of it."""

    result: RunResult


def launch(plan: Plan, call: Call, renewal: Renewal | None, options: Options) -> str | NeverRan:
    """Bring the call into the background; the container's id. It is this process's until it is
    created, or started where that is asked for: should this process end before, so does it.

    Raises:
        OcisbxError: it cannot be created, or started; nothing is left of it.
    """
    if call.argv:
        plan.commands.check(call.argv)
    else:
        _refuse_terminal(plan)

    sweep()

    def attempt(plan: Plan) -> str | NeverRan:
        if plan.cgroup is not None:
            # The supervisor is born in the place that we take here. It could not ask systemd for
            # one: that takes a library, and more memory than all the rest of it.
            settle(needed=controllers_of(plan.cgroup.files))
        return _attempt(plan, call, options)

    try:
        return attempt(plan)
    except CgroupError as error:
        if renewal is None:
            raise
        return launch_with_less(plan, error, renewal, attempt)[1]
    except RuntimeFailed:
        second = choose_again(plan, renewal)
        if second is None:
            raise
        return attempt(second)


def _refuse_terminal(plan: Plan) -> None:
    if plan.terminal:
        raise Unsupported(
            "a session has no terminal of its own",
            remedy="leave -t (`terminal`) out; ocisbx session run -t gives one to a command",
        )


def _attempt(plan: Plan, call: Call, options: Options) -> str | NeverRan:
    stdin, borrowed = _input(call.stdin)
    inherited = [name for name in plan.inherit if name in call.environment]
    if find_quirks(plan.runtime.name, plan.runtime.version).sealed_pays == "many":
        # The copy would be one container's alone, for as long as it runs.
        plan = plan._replace(sealed=False)
    request = Request(
        id=new_id(),
        plan=plan,
        argv=call.argv,
        environment={name: call.environment[name] for name in inherited},
        extra_environment=dict(call.extra_environment),
        name=call.name,
        start=options.start,
        audit=options.audit,
        resolve_s=options.resolve_s,
        start_timeout_s=call.start_timeout_s,
        stdin=None if stdin is None else STDIN_FD,
        parent=None if options.parent is None else PARENT_FD,
        idle_s=options.idle_s,
        lifetime_s=options.lifetime_s,
        parent_id=options.parent_id,
        keyboard=options.keyboard,
        transcript=None if options.transcript is None else TRANSCRIPT_FD,
    )
    if options.transcript is not None:
        # A supervisor before this one may have begun it.
        os.ftruncate(options.transcript, 0)
    given = {STDIN_FD: stdin, PARENT_FD: options.parent, TRANSCRIPT_FD: options.transcript}
    descriptors = {number: ours for number, ours in given.items() if ours is not None}
    ours, theirs = socket.socketpair()
    with ours:
        try:
            child = _spawn(request.id, descriptors | {CALLER_FD: theirs.fileno()})
        finally:
            theirs.close()
            if stdin is not None and not borrowed:
                os.close(stdin)
        # Where it is dead, what it said before is still to be read.
        with contextlib.suppress(OSError):
            send_request(ours, request)
        # What was started goes on as nobody's child.
        child.wait()
        child.close()
        return _hear(ours, request, options.tell)


def _input(source: bytes | int | None) -> tuple[int | None, bool]:
    """A descriptor that the supervisor can read it from, and whether that is the caller's own."""
    if source is None or isinstance(source, int):
        return source, True
    descriptor = os.memfd_create("input", os.MFD_CLOEXEC)
    rest = memoryview(source)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor, False


def _spawn(container_id: str, descriptors: dict[int, int]) -> Child:
    places = find_places()
    ensure(places.cache)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    # Without docstrings, by bytecode that is written where we may: it is a third smaller so.
    small = ["-I", "-S", "-OO", "-X", f"pycache_prefix={ensure(places.bytecode)}"]
    handed = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    try:
        return spawn(
            [sys.executable, *small, BOOT, HOME, container_id],
            descriptors={0: null, 1: null, 2: null, **descriptors},
            environment={**ENVIRONMENT, **THRIFTY, **handed},
        )
    except SpawnError as error:
        raise OcisbxError(
            "no supervisor can be started",
            why=f"{sys.executable}: {error.strerror}",
            remedy="free some memory, or allow more processes (ulimit -u)",
        ) from error
    finally:
        os.close(null)


def _hear(
    connection: socket.socket, request: Request, tell: Callable[[str], None]
) -> str | NeverRan:
    """What comes of it, in the supervisor's words."""
    for line in read_lines(connection):
        if "say" in line:
            tell(str(line["say"]))
        elif "failed" in line:
            raise error_of(line["failed"])
        elif "never_ran" in line:
            ending = line["never_ran"]
            if "error" in ending:
                raise error_of(ending["error"])
            return NeverRan(RunResult.from_dict(ending["result"], Captured(), Captured()))
        elif "created" in line or "started" in line:
            return request.id
    # Not a failure of the runtime's, which another one could make good.
    raise OcisbxError(
        "the supervisor ended before the container was started",
        why="it was killed, or could not run",
        remedy="try again; `ocisbx gc` removes what it left",
    )
