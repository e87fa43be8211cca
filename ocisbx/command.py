"""The one door for host programs: every process that ocisbx starts is started here.

posix_spawn(3) only: a fork of a large Python heap costs tens of milliseconds (performance.md 4).
Each child gets a session of its own, so that a Ctrl-C at the caller's terminal reaches the caller
and not the runtime, and an environment that we made: the caller's LISTEN_FDS and NOTIFY_SOCKET
would reach into the container (linux.md 2.6, H3, H4).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# newuidmap lies in /usr/bin, iptables-like helpers in sbin; nothing of the caller's PATH.
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
}

OUTPUT_LIMIT_BYTES = 1 << 20
# How long a wait may be before Python looks whether a signal has come: one that comes right before
# the wait does not interrupt it, nor one that the kernel gives to another thread (signal(7)).
LOOK_S = 1.0
# All get their default action in a child, since exec would hand on what is ignored: Python's
# SIGPIPE, a shell's SIGINT in the background, a caller's SIGCHLD (a runtime could not wait for its
# children). Asking which are takes longer.
CATCHABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class SpawnError(OSError):
    """The program could not be started at all; `errno` tells why."""


class CommandTimeout(OcisbxError):
    """A host program did not end in time and was killed."""


class Status(NamedTuple):
    """How a host program ended: `exit_code`, or the signal that killed it; neither: unknown."""

    exit_code: int | None
    signal: int | None
    cpu_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        if self.signal is not None:
            return f"signal {self.signal}"
        return "an unknown status" if self.exit_code is None else f"exit code {self.exit_code}"


class Completed(NamedTuple):
    """A short host program after its end, with what it printed (up to 1 MiB each)."""

    argv: tuple[str, ...]
    status: Status
    stdout: bytes
    stderr: bytes


class Child:
    """A host program that runs; close() frees its pidfd, and reaps it when it has ended."""

    def __init__(self, argv: tuple[str, ...], pid: int, pidfd: int) -> None:
        self.argv = argv
        self.pid = pid
        self.pidfd = pidfd
        self.status: Status | None = None

    def poll(self) -> Status | None:
        """The status once it has ended; never blocks."""
        if self.status is None:
            try:
                pid, raw, usage = os.wait4(self.pid, os.WNOHANG)
            except ChildProcessError:
                # The caller ignores SIGCHLD, or waits for every child: the status went there.
                self.status = _unknown_when_ended(self.pidfd)
                return self.status
            if pid:
                self.status = _status(raw, usage.ru_utime + usage.ru_stime)
        return self.status

    def wait(self, timeout_s: float | None = None) -> Status | None:
        """The status, or None when `timeout_s` passed first."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.poll() is None:
            left_s = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
            if left_s <= 0:
                break
            _poll_one(self.pidfd, left_s)
        return self.status

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal the process itself; safe against a reused pid, silent when it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def spawn(
    argv: Sequence[str],
    *,
    descriptors: Mapping[int, int],
    executable: str | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
    closes: bool = False,
) -> Child:
    """Start `argv` with exactly the descriptors given (`{number in the child: ours}`). `closes`: it
    sees to that itself, and may have what somebody left inheritable.

    Raises:
        SpawnError: no such program, not executable, no memory.
    """
    lifted, temporary = _lift(descriptors)
    actions: list[tuple[int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in lifted.items()
    ]
    leaks = [] if closes else _inheritable(set(lifted))
    actions += [(os.POSIX_SPAWN_CLOSE, leaked) for leaked in leaks]
    try:
        pid = os.posix_spawn(
            executable or argv[0],
            list(argv),
            dict(environment),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=CATCHABLE,
        )
    except OSError as error:
        raise SpawnError(error.errno, error.strerror, argv[0]) from error
    finally:
        for descriptor in temporary:
            os.close(descriptor)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        # No descriptor left: a child that nobody could wait for must not go on.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise SpawnError(error.errno, error.strerror, argv[0]) from error
    return Child(tuple(argv), pid, pidfd)


def become(argv: Sequence[str], environment: Mapping[str, str] = ENVIRONMENT) -> NoReturn:
    """Replace this process by `argv`, found on the environment's PATH; descriptors 0 to 2 stay.

    Raises:
        SpawnError: no such program, not executable.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], list(argv), dict(environment))
    except OSError as error:
        raise SpawnError(error.errno, error.strerror, argv[0]) from error


def go_on_alone() -> None:
    """Go on in a child of this process, which ends: nobody has to wait for us any more.

    For a process that is small and has one thread. The child is smaller still: of the interpreter
    it maps what it uses from now on, not what starting and importing took (fork(2) copies no page
    tables of files).
    """
    if os.fork():
        os._exit(0)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    executable: str | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Completed:
    """Run a short host program to its end, without stdin.

    Raises:
        SpawnError: it could not be started.
        CommandTimeout: it ran longer than `timeout_s` and was killed.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        child = spawn(
            argv,
            descriptors={0: null, 1: out_write, 2: err_write},
            executable=executable,
            environment=environment,
        )
    except BaseException:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        for descriptor in (null, out_write, err_write):
            os.close(descriptor)
    try:
        outputs, ended = _collect(child, (out_read, err_read), time.monotonic() + timeout_s)
    finally:
        child.kill()
        child.wait()
        child.close()
        os.close(out_read)
        os.close(err_read)
    if not ended:
        import shlex  # noqa: PLC0415 -- for a failure only

        raise CommandTimeout(
            f"{shlex.join(argv)} did not end within {timeout_s:g} s", why="it was killed"
        )
    assert child.status is not None
    return Completed(tuple(argv), child.status, bytes(outputs[0]), bytes(outputs[1]))


def _collect(
    child: Child, pipes: tuple[int, int], deadline: float
) -> tuple[tuple[bytearray, bytearray], bool]:
    """Read both pipes until the child's own end: its descendants may hold them longer."""
    outputs = {fd: bytearray() for fd in pipes}
    poller = select.poll()
    poller.register(child.pidfd, select.POLLIN)
    for fd in pipes:
        os.set_blocking(fd, False)
        poller.register(fd, select.POLLIN)
    while child.poll() is None and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left * 1000 + 1):
            if fd in outputs and not _drain(fd, outputs[fd]):
                poller.unregister(fd)
    for fd, buffer in outputs.items():
        _drain(fd, buffer)
    return (outputs[pipes[0]], outputs[pipes[1]]), child.status is not None


def _drain(fd: int, buffer: bytearray) -> bool:
    """Read what is there, keeping the first megabyte; False at the end of the stream."""
    while True:
        try:
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        buffer += chunk[: max(0, OUTPUT_LIMIT_BYTES - len(buffer))]


def _status(raw: int, cpu_s: float) -> Status:
    if os.WIFSIGNALED(raw):
        return Status(None, os.WTERMSIG(raw), cpu_s)
    return Status(os.WEXITSTATUS(raw), None, cpu_s)


def _unknown_when_ended(pidfd: int) -> Status | None:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return Status(None, None) if poller.poll(0) else None


def _poll_one(descriptor: int, timeout_s: float) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.poll(timeout_s * 1000 + 1)


def _lift(descriptors: Mapping[int, int]) -> tuple[dict[int, int], list[int]]:
    """Copies for those of our descriptors whose number is itself a target of a dup2.

    A caller may have closed its own 0, 1 or 2, and a pipe then got that number.
    """
    top = max(descriptors, default=0)
    lifted: dict[int, int] = {}
    temporary: list[int] = []
    for theirs, ours in descriptors.items():
        if ours <= top and ours != theirs:
            ours = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, top + 1)
            temporary.append(ours)
        lifted[theirs] = ours
    return lifted, temporary


def _inheritable(kept: set[int]) -> list[int]:
    """Descriptors that somebody in this process left without O_CLOEXEC (linux.md 2.6, H1)."""
    leaked: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor in kept:
            continue
        try:
            if os.get_inheritable(descriptor):
                leaked.append(descriptor)
        except OSError as error:
            # The directory's own descriptor is among the names, and closed by now.
            if error.errno != errno.EBADF:
                raise
    return leaked
