"""Server: lends the containers of a pool over a unix socket, to its own user."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import threading
from typing import TYPE_CHECKING, Any, Self

from ocisbx.command import LOOK_S
from ocisbx.errors import ConfigError, InvalidState, OcisbxError
from ocisbx.pool.lending import PACKET_BYTES, check_peer, new_socket
from ocisbx.values import show
from ocisbx.version import VERSION

if TYPE_CHECKING:
    from ocisbx.plan import Plan
    from ocisbx.pool.member import Member
    from ocisbx.pool.pool import Pool

BACKLOG = 128
# How long a borrower may take to say what it wants.
PATIENCE_S = 10.0


class Server:
    """Use it as a context; `serve` goes on until an exception (KeyboardInterrupt)."""

    def __init__(self, pool: Pool, path: str) -> None:
        """Listen at `path`, mode 0600; a socket that nobody listens at is replaced.

        Raises:
            InvalidState: somebody listens there.
            ConfigError: something else is there, or a socket cannot be.
        """
        self._pool = pool
        self._path = path
        self._listener = _listen(path)
        self._lock = threading.Lock()
        self._lent: dict[socket.socket, threading.Thread] = {}
        self._plan: Plan | None = None
        self._plan_file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the socket's name, and end what is lent."""
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        with self._lock:
            lent = dict(self._lent)
            for connection in lent:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in lent.values():
            thread.join()
        if self._plan_file >= 0:
            os.close(self._plan_file)

    def serve(self) -> None:
        """Lend to whoever connects."""
        self._listener.settimeout(LOOK_S)
        while True:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="ocisbx-lend", daemon=True
            )
            with self._lock:
                self._lent[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            # Whoever has gone meanwhile needs no answer.
            with contextlib.suppress(OSError):
                if check_peer(connection):
                    self._lend(connection)
        finally:
            with self._lock:
                del self._lent[connection]
                connection.close()

    def _lend(self, connection: socket.socket) -> None:
        try:
            asked = _asked(connection)
            if asked is None:
                return
            with self._pool.lend(asked["workspace"]) as (member, plan):
                self._hand_out(connection, member, plan)
                # Until the borrower closes it, whatever else it sends.
                while connection.recv(1):
                    pass
        except OcisbxError as error:
            told = {"what": error.what, "why": error.why, "remedy": error.remedy}
            connection.send(json.dumps(told).encode())

    def _hand_out(self, connection: socket.socket, member: Member, plan: Plan) -> None:
        execution = member.execution
        offer = {
            "version": VERSION,
            "id": execution.id,
            "bundle": execution.bundle_path,
            "cgroup": "" if execution.box is None else execution.box.path,
        }
        # Of a workspace's own plan there is a file for each loan.
        file = self._file_of(plan) if plan is member.plan else _in_memory(plan)
        try:
            descriptors = [execution.init_socket, file]
            socket.send_fds(connection, [json.dumps(offer).encode()], descriptors)
        finally:
            if plan is not member.plan:
                os.close(file)

    def _file_of(self, plan: Plan) -> int:
        """The plan in memory, written once."""
        with self._lock:
            if plan is not self._plan:
                if self._plan_file >= 0:
                    os.close(self._plan_file)
                self._plan_file = _in_memory(plan)
                self._plan = plan
            return self._plan_file


def _in_memory(plan: Plan) -> int:
    descriptor = os.memfd_create("plan", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(plan.to_json().encode())
    return descriptor


def _asked(connection: socket.socket) -> dict[str, Any] | None:
    """What the borrower wants; None: it does not say, or has gone."""
    connection.settimeout(PATIENCE_S)
    try:
        told = json.loads(connection.recv(PACKET_BYTES))
        return {"workspace": told["workspace"]}
    except (TimeoutError, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.settimeout(None)


def _listen(path: str) -> socket.socket:
    listener = new_socket()
    # Until it listens nobody can connect; the mode is there with the name.
    before = os.umask(0o177)
    try:
        try:
            listener.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            _take_away(path)
            listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"a socket cannot be made at {show(path)}",
            why=(error.strerror or str(error)).lower(),
            remedy="name a short path in a directory of yours: --socket PATH",
        ) from None
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _take_away(path: str) -> None:
    """Remove a socket that nobody listens at. Raises InvalidState, ConfigError."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        what = f"{show(path)} is there, and is no socket"
        raise ConfigError(what, remedy="name another path: --socket PATH")
    with new_socket() as trial:
        try:
            trial.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise InvalidState(
        f"somebody listens at {show(path)} already", remedy="use it, or name another path"
    )
