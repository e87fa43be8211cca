"""Launchers that are a command line: each call is one program, started by `ocisbx.command`."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from typing import TYPE_CHECKING

from ocisbx import command
from ocisbx.bench.launchers import Answer, Job, Opened
from ocisbx.errors import RuntimeFailed
from ocisbx.probe.processes import command_line, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ocisbx.command import Child

    # Of the lane and of the payload's command line.
    MakeArgv = Callable[[int, Sequence[str]], list[str]]

TIMEOUT_S = 30.0
UP = b"up\n"
SHELL = "/bin/sh"
ANSWER_BYTES = 4096
ASKED_S = 5.0

_numbers = itertools.count()


def unique() -> str:
    """A name that no other call of this machine has."""
    return f"ocisbx-bench-{os.getpid()}-{next(_numbers)}"


def opened(
    job: Job, make_argv: MakeArgv, environment: Mapping[str, str] = command.ENVIRONMENT
) -> Opened:
    """Each call is `make_argv(lane, payload)`, with pipes for both outputs read to their ends."""
    payload = payload_of(job)

    def call(lane: int) -> Answer:
        done = command.run(make_argv(lane, payload), timeout_s=TIMEOUT_S, environment=environment)
        return Answer(done.status.exit_code, done.stdout, done.stderr)

    return Opened(call)


def payload_of(job: Job) -> list[str]:
    """The workload; or one that says that it runs, and stays."""
    if not job.mark:
        return job.argv
    return [SHELL, "-c", f"echo up; exec sleep 86400.{job.mark}"]


@contextlib.contextmanager
def held(
    job: Job, make_argv: MakeArgv, environment: Mapping[str, str] = command.ENVIRONMENT
) -> Iterator[None]:
    """Start a payload that stays in each lane; they are ended with the context."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    children: list[Child] = []
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, null)
        stack.callback(_end, children, job.mark)
        for lane in range(job.lanes):
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            argv = make_argv(lane, payload_of(job))
            try:
                given = {0: null, 1: writer, 2: writer}
                children.append(command.spawn(argv, descriptors=given, environment=environment))
            finally:
                os.close(writer)
            if (said := os.read(reader, ANSWER_BYTES)) != UP:
                raise RuntimeFailed(f"{argv[0]} did not start", why=said.decode(errors="replace"))
        yield


def _end(children: Sequence[Child], mark: str) -> None:
    """First what runs in them, with which most launchers end and take away what they have made;
    then those that wait for a word. All at once: who waits for us has no patience for each."""
    end_payloads(mark)
    for child in children:
        child.kill(signal.SIGTERM)
    until = time.monotonic() + ASKED_S
    for child in children:
        if child.wait(max(0.0, until - time.monotonic())) is None:
            child.kill()
            child.wait()
        child.close()
    end_payloads(mark)


def end_payloads(mark: str) -> None:
    """Process 1 of a container does not hear SIGTERM, nor is it always its launcher's child."""
    payload = f"86400.{mark}".encode()
    for pid in processes() if mark else ():
        if payload in command_line(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
