"""The supervisor's end of the control socket: many clients, one thread, nothing that blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from ocisbx.background.packets import (
    PACKET_BYTES,
    PacketError,
    control_address,
    decode_request,
    encode,
    error_document,
    peer_uid,
)
from ocisbx.bundle.owner import draft_name
from ocisbx.errors import InvalidState, OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.probe.processes import own_start_time, pid_namespace

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Answer(Protocol):
        """How to answer: once, with a descriptor where one is asked for."""

        def __call__(self, document: dict[str, Any], descriptor: int | None = None) -> None: ...

    # Given the verb, its members and how to answer (once, now or later).
    Handler = Callable[[str, dict[str, Any], "Answer"], None]

# Of this user, at once; further ones wait to be accepted.
MAX_CLIENTS = 128
# Why one cannot be accepted who stays in the queue (accept(2)), and how long nobody is then.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
REST_S = 0.1


class Events:
    """Descriptors and what is done when they are ready, behind one descriptor that polls."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._actions: dict[int, Callable[[], object]] = {}
        # Those that nobody listens to now, and until when (time.monotonic()).
        self._resting: dict[int, float] = {}
        self._on_rest: Callable[[float], object] = lambda _: None

    def fileno(self) -> int:
        return self._poll.fileno()

    def at_rest(self, call: Callable[[float], object]) -> None:
        """Who polls `fileno`, and would not come to `turn` by itself, is told when to."""
        self._on_rest = call
        for until in self._resting.values():
            call(until)

    def watch(
        self, descriptor: int, action: Callable[[], object], events: int = select.EPOLLIN
    ) -> None:
        self._poll.register(descriptor, events)
        self._actions[descriptor] = action

    def forget(self, descriptor: int) -> None:
        """Silent when it is not watched."""
        if self._actions.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)
            self._resting.pop(descriptor, None)

    def rest(self, descriptor: int, seconds: float) -> None:
        """Be deaf for so long to one that is watched for input, and would wake us at once."""
        until = time.monotonic() + seconds
        self._poll.modify(descriptor, 0)
        self._resting[descriptor] = until
        self._on_rest(until)

    def turn(self, timeout_s: float = 0.0) -> None:
        """Deal with all that is there, or comes in time."""
        now = time.monotonic()
        for descriptor, until in list(self._resting.items()):
            if until <= now:
                del self._resting[descriptor]
                self._poll.modify(descriptor, select.EPOLLIN)
        wake_s = min(self._resting.values(), default=float("inf")) - now
        for descriptor, _ in self._poll.poll(min(timeout_s, wake_s)):
            # One of those before may have taken it away.
            action = self._actions.get(descriptor)
            if action is not None:
                action()

    def close(self) -> None:
        self._poll.close()


class Control:
    """Listens at controls/ID; every request of this user's is handed to `handle`."""

    def __init__(self, container_id: str, events: Events, handle: Handler) -> None:
        """Raises OcisbxError: the socket cannot be made."""
        ensure(find_places().runtime)
        self._path = f"{ensure(find_places().controls)}/{container_id}"
        self._events = events
        self._handle = handle
        self._clients: set[socket.socket] = set()
        # For one who comes when none is left; -1: somebody else has taken it.
        self._spare_fd = -1
        try:
            self._spare_fd = _open_spare()
            self._listener = self._bind(container_id)
        except OSError as error:
            self._drop_spare()
            raise OcisbxError(
                f"the control socket {self._path} cannot be made", why=error.strerror or ""
            ) from error

    def _bind(self, container_id: str) -> socket.socket:
        """Listen there. Raises OSError: nothing is left open."""
        pid = os.getpid()
        draft = draft_name(pid, own_start_time(), pid_namespace(), container_id)
        with contextlib.ExitStack() as directory_only, contextlib.ExitStack() as stack:
            directory = os.open(find_places().controls, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            directory_only.callback(os.close, directory)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            stack.callback(listener.close)
            listener.bind(control_address(directory, draft))
            stack.callback(os.unlink, draft, dir_fd=directory)
            os.chmod(draft, 0o600, dir_fd=directory)
            listener.listen(MAX_CLIENTS)
            self._events.watch(listener.fileno(), self._accept)
            stack.callback(self._events.forget, listener.fileno())
            # By its own name it is one that listens, or one whose supervisor is dead.
            os.rename(draft, container_id, src_dir_fd=directory, dst_dir_fd=directory)
            stack.pop_all()
        return listener

    def _accept(self) -> None:
        # First: who comes next would not hear of a shortage that leaves room for one.
        self._keep_spare()
        try:
            client, _ = self._listener.accept()
        except OSError as error:
            # Else they are gone again.
            if error.errno in SHORTAGES:
                self._refuse_one(error)
            return
        client.settimeout(0)
        if peer_uid(client) not in (os.geteuid(), 0):
            client.close()
            return
        try:
            self._events.watch(client.fileno(), lambda: self._receive(client))
        except OSError as error:
            _refuse(client, error)
            return
        self._clients.add(client)
        if len(self._clients) >= MAX_CLIENTS:
            self._events.forget(self._listener.fileno())

    def _refuse_one(self, error: OSError) -> None:
        """Who waits to be accepted would wake us again and again, and never hear why."""
        self._drop_spare()
        try:
            client, _ = self._listener.accept()
        except OSError as again:
            if again.errno in SHORTAGES:
                # There was none to give up, or another thread was faster.
                self._events.rest(self._listener.fileno(), REST_S)
        else:
            _refuse(client, error)
        self._keep_spare()

    def _keep_spare(self) -> None:
        """Take it again where it was lost, and can be had."""
        if self._spare_fd < 0:
            with contextlib.suppress(OSError):
                self._spare_fd = _open_spare()

    def _drop_spare(self) -> None:
        if self._spare_fd >= 0:
            os.close(self._spare_fd)
            self._spare_fd = -1

    def _receive(self, client: socket.socket) -> None:
        try:
            data = client.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return

        def answer(document: dict[str, Any], descriptor: int | None = None) -> None:
            # Who does not wait for the answer does not get it.
            given = [] if descriptor is None else [descriptor]
            with contextlib.suppress(OSError):
                socket.send_fds(client, [encode(document)], given)

        try:
            verb, members = decode_request(data)
            self._handle(verb, members, answer)
        except PacketError as error:
            answer({"error": error_document(error)})
        except OSError as error:
            # What one who asks cannot have is no matter of the container's.
            answer({"error": error_document(_shortage(error))})

    def _drop(self, client: socket.socket) -> None:
        full = len(self._clients) >= MAX_CLIENTS
        self._events.forget(client.fileno())
        self._clients.discard(client)
        client.close()
        if full:
            self._events.watch(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Nobody new can come, then everybody hears the end."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self._events.forget(self._listener.fileno())
        self._listener.close()
        self._drop_spare()
        for client in self._clients:
            client.close()
        self._clients.clear()


def _open_spare() -> int:
    return os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)


def _refuse(client: socket.socket, error: OSError) -> None:
    """Tell them why nobody hears them."""
    with client, contextlib.suppress(OSError):
        client.settimeout(0)
        if peer_uid(client) in (os.geteuid(), 0):
            client.send(encode({"error": error_document(_shortage(error))}))


def _shortage(error: OSError) -> InvalidState:
    return InvalidState(
        "its process can do no more for others now",
        why=f"it cannot open what that takes: {error.strerror or error}",
        remedy="raise `ulimit -n` before it is started, or let one who is attached detach",
    )
