"""What gives a waiting container its workspace: a process of our own that waits beside it
(ocisbx-init(7), "The cell"), so that a call does not wait for its start."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import weakref
from collections import deque
from typing import TYPE_CHECKING

from ocisbx import command
from ocisbx.backends.placeholders import hold
from ocisbx.bundle.covers import shared_covers
from ocisbx.container.policy import COVERS
from ocisbx.errors import RuntimeFailed
from ocisbx.init import cell_path
from ocisbx.mounts import PER_CALL_PLACE
from ocisbx.probe.speed import slowness
from ocisbx.values import show

if TYPE_CHECKING:
    from ocisbx.backends.late import Given, Late

MOUNT_TIMEOUT_S = 30.0
# ocisbx-init(7), "The cell".
ORDER_FD, COMPLAINT_FD, CONTAINER_FD = 0, 2, 3
DONE = b"\n"
EXIT_GONE = 3
ANSWER_BYTES = 4096
# Each time it is told something, the mounter is woken.
AT_ONCE = 4

_INT = struct.Struct("i")

_mounters: weakref.WeakSet[Mounter] = weakref.WeakSet()


class _Order:
    """What is laid over a workspace: said in its order, as far as all that it names is there."""

    def __init__(self, mounter: Mounter, late: Late) -> None:
        self._mounter = mounter
        self._missing = {one.path for one in late.placeholders}
        self._noted = 0
        self._left = deque(late.layers)

    def note(self, path: str) -> None:
        """This is there."""
        self._missing.discard(path)
        self._noted += 1
        if self._noted % AT_ONCE == 0:
            self._say()

    def end(self) -> None:
        """All is."""
        self._missing.clear()
        self._say(b"\0")

    def _say(self, end: bytes = b"") -> None:
        said = b""
        while self._left and self._left[0].path not in self._missing:
            layer = self._left.popleft()
            said += self._mounter.covers + layer.words if layer.is_cover else layer.words
        self._mounter.tell(said + end)


class Mounter:
    """Gives one container its workspace, once. Whoever has it closes it.

    It ends with us: a process that was forked from ours has none of them, or it would not hear
    our end.
    """

    def __init__(self, container: int) -> None:
        """`container`: a pidfd of its process 1; its bundle is there.

        Raises:
            OcisbxError: it cannot be started.
        """
        try:
            self._start(container)
        except OSError as error:
            raise RuntimeFailed(
                "what gives a container its workspace cannot be started", why=str(error)
            ) from error

    def _start(self, container: int) -> None:
        self.covers = os.fsencode(f"{shared_covers()[COVERS]}/")
        self._late: Late | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        _mounters.add(self)
        self._socket.settimeout(MOUNT_TIMEOUT_S)
        try:
            self._child = command.spawn(
                [cell_path(), "-w", PER_CALL_PLACE],
                descriptors={ORDER_FD: theirs.fileno(), COMPLAINT_FD: theirs.fileno(),
                             CONTAINER_FD: container},
            )  # fmt: skip
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()

    @property
    def is_waiting(self) -> bool:
        """Whether it could be given an order."""
        return not self._speaks(0)

    def begin(self, given: Given, names: contextlib.ExitStack) -> None:
        """Order it, with all that lies over it, for the container; once, then `is_done` tells.
        Nothing of the host's mounts changes. What keeps names free is for `names` to take away.

        Raises:
            OcisbxError: it cannot be done; the container is not to be used.
        """
        self._late = late = given.late
        directory = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(given.directory))
        self.tell(b"r" if late.read_only else b"w", directory)
        order = _Order(self, late)
        # What is there is mounted while the rest is being made.
        names.enter_context(hold(late.placeholders, order.note))
        order.end()

    def is_done(self) -> bool:
        """Wait until it is mounted; False: the container has ended.

        Raises:
            OcisbxError: as `begin`.
        """
        assert self._late is not None
        return self._hear(self._late.source)

    def tell(self, data: bytes, *along: tuple[int, int, bytes]) -> None:
        """Tell it more of its order, with what sendmsg(2) is to send along."""
        # One that has ended is noticed by its answer.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                sent = self._socket.sendmsg([data], along) if data else 0
                self._socket.sendall(data[sent:])
            except TimeoutError:
                self._child.kill()

    def _hear(self, source: str) -> bool:
        why = ""
        if not self._speaks(MOUNT_TIMEOUT_S * slowness()):
            why = "it did not end in time"
        elif (answer := self._answer()) == DONE:
            return True
        elif answer:
            why = answer.decode(errors="replace").strip()
        else:
            status = self._child.wait()
            if status is not None and status.exit_code == EXIT_GONE:
                return False
            why = f"ocisbx-cell: {status}"
        raise RuntimeFailed(
            f"the workspace {show(source)} cannot be mounted",
            why=why,
            remedy="run it again if it has just changed; else a pool for each workspace",
        )

    def _answer(self) -> bytes:
        try:
            return self._socket.recv(ANSWER_BYTES)
        except ConnectionResetError:
            return b""

    def _speaks(self, timeout_s: float) -> bool:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def close(self) -> None:
        """End it, whatever it does; idempotent."""
        self._socket.close()
        self._child.kill()
        self._child.wait()
        self._child.close()

    def after_fork(self) -> None:
        """In the child: it is the parent's."""
        self._socket.close()


def _after_fork() -> None:
    for mounter in list(_mounters):
        mounter.after_fork()


os.register_at_fork(after_in_child=_after_fork)
