"""The agent in the test machine: runs commands for the host, as a user, in a context.

It is a service of the guest's system manager, and stands on the guest's own python3 alone.
"""

import contextlib
import fcntl
import glob
import json
import os
import pwd
import selectors
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.vm_contexts import Started, find_user, start
from tools.vm_wire import CHUNK_BYTES, PORT, Kind, Unpacker, pack

_RNDADDENTROPY = 0x40085203
_RNDRESEEDCRNG = 0x5207
# Reads of a port without a host return at once.
_NO_HOST_S = 0.01
# How long what a command left behind may go on to write after the command has ended.
_LINGER_S = 0.3


class Port:
    """The guest's end of the line to the host."""

    def __init__(self) -> None:
        self.fd = os.open(_find_port(), os.O_RDWR | os.O_CLOEXEC)
        self._unpacker = Unpacker()
        self._frames: list[tuple[Kind, bytes]] = []

    def read(self) -> list[tuple[Kind, bytes]]:
        """Return the frames that have come, none when the host has gone."""
        data = os.read(self.fd, CHUNK_BYTES)
        if not data:
            time.sleep(_NO_HOST_S)
        return list(self._unpacker.feed(data))

    def next(self) -> tuple[Kind, bytes]:
        """Wait for one frame."""
        while not self._frames:
            self._frames = self.read()
        return self._frames.pop(0)

    def next_data(self) -> Iterator[bytes]:
        """Yield the pieces of a stream until its end."""
        while True:
            kind, payload = self.next()
            if kind is Kind.END:
                return
            yield payload

    def pending(self) -> list[tuple[Kind, bytes]]:
        """Hand over the frames that `next` has read ahead."""
        frames, self._frames = self._frames, []
        return frames

    def send(self, kind: Kind, payload: bytes | dict[str, Any] = b"") -> None:
        """Write one frame; wait while the host is slow."""
        rest = memoryview(pack(kind, payload))
        while rest:
            rest = rest[os.write(self.fd, rest) :]


def main() -> None:
    """Serve the host for ever."""
    port = Port()
    verbs = {Kind.HELLO: _hello, Kind.PUT: _put, Kind.GET: _get, Kind.RUN: _run}
    while True:
        kind, payload = port.next()
        if kind not in verbs:
            continue  # what was on its way to a command that has ended
        try:
            verbs[kind](port, json.loads(payload))
        except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
            port.send(Kind.FAILED, {"what": str(error)})


def _find_port() -> str:
    for name in glob.glob("/sys/class/virtio-ports/*/name"):
        if Path(name).read_text().strip() == PORT:
            return "/dev/" + Path(name).parent.name
    what = f"no virtio-serial port {PORT}"
    raise FileNotFoundError(what)


def _hello(port: Port, asked: dict[str, Any]) -> None:
    seed = bytes.fromhex(asked["random"])
    with open("/dev/urandom", "wb", buffering=0) as urandom:
        pool = struct.pack("ii", len(seed) * 8, len(seed)) + seed
        fcntl.ioctl(urandom, _RNDADDENTROPY, pool)
        fcntl.ioctl(urandom, _RNDRESEEDCRNG)
    time.clock_settime_ns(time.CLOCK_REALTIME, asked["time_ns"])
    port.send(Kind.OK)


# ------------------------------------------------------------------ trees in and out


def _put(port: Port, asked: dict[str, Any]) -> None:
    target = Path(asked["path"])
    try:
        user = find_user(asked["user"])
        folder = target if asked["directory"] else target.parent
        _make_directory(folder, user)
    except (OSError, LookupError):
        for _ in port.next_data():
            pass
        raise
    with subprocess.Popen(
        ["tar", "--extract", "--no-same-owner", "--preserve-permissions", f"--directory={folder}"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
    ) as tar:
        assert tar.stdin is not None
        assert tar.stderr is not None
        for piece in port.next_data():
            try:
                tar.stdin.write(piece)
            except BrokenPipeError:
                continue
        with contextlib.suppress(BrokenPipeError):
            tar.stdin.close()
        said = tar.stderr.read().decode(errors="replace").strip()
    if tar.returncode:
        what = f"cannot unpack into {folder}: {said[-1000:]}"
        raise OSError(what)
    port.send(Kind.OK)


def _make_directory(folder: Path, user: pwd.struct_passwd) -> None:
    """Make a directory and its parents, owned by the user where they are new."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o755)
        os.chown(one, user.pw_uid, user.pw_gid)


def _get(port: Port, asked: dict[str, Any]) -> None:
    folder = Path(asked["path"])
    if not folder.is_dir() or not any(folder.iterdir()):
        port.send(Kind.TAR_END, {"code": 0, "said": ""})
        return
    with subprocess.Popen(
        ["tar", "--create", "--sparse", f"--directory={folder}", "."],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as tar:
        assert tar.stdout is not None
        assert tar.stderr is not None
        while piece := tar.stdout.read(CHUNK_BYTES):
            port.send(Kind.TAR, piece)
        said = tar.stderr.read().decode(errors="replace").strip()
    port.send(Kind.TAR_END, {"code": tar.returncode, "said": said[-1000:]})


# ------------------------------------------------------------------ one command


def _run(port: Port, asked: dict[str, Any]) -> None:
    out = Path(asked["env"]["OUT"])
    _make_directory(out, find_user(asked["user"]))
    try:
        started = start(asked)
    except FileNotFoundError as error:
        port.send(Kind.ERR, f"vm: {error.filename}: {error.strerror}\n".encode())
        port.send(Kind.EXIT, {"code": 127})
        return
    with started.process:
        code = _Running(port, started).wait()
    port.send(Kind.EXIT, {"code": code})


class _Running:
    """The streams of one command, until it has ended."""

    def __init__(self, port: Port, started: Started) -> None:
        self._port = port
        self._started = started
        self._process = process = started.process
        self._selector = selectors.DefaultSelector()
        self._input = bytearray()
        self._input_ended = False
        streams = ((process.stdout, Kind.OUT), (process.stderr, Kind.ERR))
        self._outputs = {stream.fileno(): kind for stream, kind in streams if stream is not None}
        for descriptor in self._outputs:
            self._selector.register(descriptor, selectors.EVENT_READ)
        self._selector.register(port.fd, selectors.EVENT_READ)
        self._exit = os.pidfd_open(process.pid)
        self._selector.register(self._exit, selectors.EVENT_READ)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)

    def wait(self) -> int:
        """Pass all streams on, and return the command's exit code, 128 + N for signal N."""
        self._take(self._port.pending())
        while self._process.poll() is None:
            self._turn(None)
        self._selector.unregister(self._exit)
        os.close(self._exit)
        end = time.monotonic() + _LINGER_S
        while self._outputs and (left_s := end - time.monotonic()) > 0:
            self._turn(left_s)
        self._selector.close()
        return self._started.code()

    def _turn(self, timeout_s: float | None) -> None:
        for key, _events in self._selector.select(timeout_s):
            if key.fd == self._port.fd:
                self._take(self._port.read())
            elif key.fd in self._outputs:
                self._pass_on(key.fd)
            elif key.fd != self._exit:
                self._write_input()

    def _take(self, frames: list[tuple[Kind, bytes]]) -> None:
        for kind, payload in frames:
            if kind is Kind.DATA:
                self._input += payload
            elif kind is Kind.END:
                self._input_ended = True
            elif kind is Kind.SIGNAL:
                self._started.signal(json.loads(payload)["number"])
        self._write_input()

    def _write_input(self) -> None:
        stream = self._process.stdin
        written = 0
        if stream is None or stream.closed:
            written = len(self._input)
        elif self._input:
            try:
                written = os.write(stream.fileno(), self._input[:CHUNK_BYTES])
            except BlockingIOError:
                pass
            except BrokenPipeError:
                written = len(self._input)
        if written:
            del self._input[:written]
            self._port.send(Kind.TAKEN, {"bytes": written})
        self._watch_input()

    def _watch_input(self) -> None:
        stream = self._process.stdin
        if stream is None or stream.closed:
            return
        watched = stream in self._selector.get_map()
        if self._input and not watched:
            self._selector.register(stream, selectors.EVENT_WRITE)
        elif watched and not self._input:
            self._selector.unregister(stream)
        if self._input_ended and not self._input:
            stream.close()

    def _pass_on(self, descriptor: int) -> None:
        data = os.read(descriptor, CHUNK_BYTES)
        if data:
            self._port.send(self._outputs[descriptor], data)
        else:
            self._selector.unregister(descriptor)
            del self._outputs[descriptor]


if __name__ == "__main__":
    main()
