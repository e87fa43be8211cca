"""The host's end of the line to the agent: trees in and out, one command, its streams."""

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tools.rootfs_recipe import BuildError
from tools.vm_wire import CHUNK_BYTES, WINDOW_BYTES, Kind, Unpacker, pack

# Of a tree only what is the tree's: no history, no environment, no caches, no built root.
_LEFT_OUT = (
    *("--exclude=.git", "--exclude=.venv", "--exclude=.venv.lock", "--exclude=.*_cache"),
    *("--exclude=.hypothesis", "--exclude=./rootfs/*/root", "--exclude=./rootfs/*/.root.*"),
)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# After a signal the command has so long to end.
_GRACE_S = 10


@dataclass(frozen=True)
class Command:
    """What to run in the guest, for whom, in which context, and where."""

    argv: Sequence[str]
    user: str
    context: str
    directory: str
    env: dict[str, str]


class Session:
    """A conversation with the agent; raises BuildError when it breaks off."""

    def __init__(self, line: socket.socket, what_happened: Callable[[], str]) -> None:
        self._line = line
        self._what_happened = what_happened
        self._unpacker = Unpacker()
        self._frames: Iterator[tuple[Kind, bytes]] = iter(())
        self._sending = threading.Lock()

    def hello(self, timeout_s: float) -> None:
        """Wait for the agent; give the guest the time, and bytes that no other guest has."""
        self._line.settimeout(timeout_s)
        asked = {"time_ns": time.time_ns(), "random": secrets.token_hex(64)}
        self._ask(Kind.HELLO, asked)
        self._line.settimeout(None)

    def put(self, source: Path, target: str, user: str) -> None:
        """Copy a directory's content, or a file, to `target`, owned by the user."""
        directory = source.is_dir()
        names = ["."] if directory else [f"--transform=s|.*|{Path(target).name}|", source.name]
        folder = source if directory else source.parent
        self._send(Kind.PUT, {"path": target, "user": user, "directory": directory})
        with subprocess.Popen(
            ["tar", *_LEFT_OUT, "--create", f"--directory={folder}", *names], stdout=subprocess.PIPE
        ) as tar:
            assert tar.stdout is not None
            while piece := tar.stdout.read(CHUNK_BYTES):
                self._send(Kind.DATA, piece)
        self._send(Kind.END)
        self._answer()
        if tar.returncode:
            what = f"tar could not read all of {source}"
            raise BuildError(what)

    def get(self, source: str, target: Path) -> None:
        """Copy a directory of the guest into `target`, which is made only for content."""
        self._send(Kind.GET, {"path": source})
        kind, payload = self._next()
        if kind is Kind.TAR:
            target.mkdir(parents=True, exist_ok=True)
            command = ["tar", "--extract", "--no-same-owner", f"--directory={target}"]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as tar:
                assert tar.stdin is not None
                while kind is Kind.TAR:
                    tar.stdin.write(payload)
                    kind, payload = self._next()
            if tar.returncode:
                what = f"tar could not write all of {target}"
                raise BuildError(what)
        end = _said(kind, payload)
        if end["code"]:
            what = f"the guest's tar could not read all of {source}"
            raise BuildError(what, why=end["said"])

    def run(self, command: Command, *, stdin: bool) -> int:
        """Run a command with our streams, and return its exit code, 128 + N for signal N."""
        window = threading.Semaphore(WINDOW_BYTES // CHUNK_BYTES)
        with self._signals_passed_on():
            self._send(Kind.RUN, asdict(command))
            if stdin:
                threading.Thread(target=self._feed, args=(window,), daemon=True).start()
            else:
                self._send(Kind.END)
            return self._follow(window)

    def _follow(self, window: threading.Semaphore) -> int:
        outputs = {Kind.OUT: 1, Kind.ERR: 2}
        taken = 0
        while True:
            kind, payload = self._next()
            if kind in outputs:
                _write(outputs[kind], payload)
            elif kind is Kind.TAKEN:
                # Pieces are shorter where the reader is slow: the window counts full ones.
                taken += _said(kind, payload)["bytes"]
                for _ in range(taken // CHUNK_BYTES):
                    window.release()
                taken %= CHUNK_BYTES
            elif kind is Kind.EXIT:
                return int(_said(kind, payload)["code"])
            else:
                _said(kind, payload)

    def _feed(self, window: threading.Semaphore) -> None:
        """Send our stdin; a full window waits until the command has read."""
        sent = 0
        try:
            while data := os.read(0, CHUNK_BYTES):
                self._send(Kind.DATA, data)
                sent += len(data)
                for _ in range(sent // CHUNK_BYTES):
                    window.acquire()
                sent %= CHUNK_BYTES
            self._send(Kind.END)
        except (OSError, BuildError):
            return  # the command has ended before its stdin

    @contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        first: list[int] = []

        def pass_on(number: int, _frame: FrameType | None) -> None:
            if first:
                give_up(number, None)
            first.append(number)
            signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
            self._send(Kind.SIGNAL, {"number": number})

        def give_up(_number: int, _frame: FrameType | None) -> None:
            raise SystemExit(128 + first[0])

        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, give_up)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, kind: Kind, payload: dict[str, Any]) -> None:
        self._send(kind, payload)
        self._answer()

    def _answer(self) -> None:
        kind, payload = self._next()
        if kind is not Kind.OK:
            _said(kind, payload)

    def _send(self, kind: Kind, payload: bytes | dict[str, Any] = b"") -> None:
        try:
            with self._sending:
                self._line.sendall(pack(kind, payload))
        except OSError as error:
            raise self._broken(str(error)) from error

    def _next(self) -> tuple[Kind, bytes]:
        while True:
            for frame in self._frames:
                return frame
            try:
                data = self._line.recv(4 * CHUNK_BYTES)
            except OSError as error:
                raise self._broken(str(error)) from error
            if not data:
                raise self._broken("the line is closed")
            self._frames = self._unpacker.feed(data)

    def _broken(self, why: str) -> BuildError:
        return BuildError("the guest does not answer", why=f"{why}; {self._what_happened()}")


def _said(kind: Kind, payload: bytes) -> dict[str, Any]:
    """Return what a frame of JSON says; raise BuildError where it says that something failed."""
    said = dict(json.loads(payload))
    if kind is Kind.FAILED:
        raise BuildError(said["what"])
    return said


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
