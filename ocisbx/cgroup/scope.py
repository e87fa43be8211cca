"""enter_scope(): have the systemd user manager move this process into a delegated scope.

org.freedesktop.systemd1(5), StartTransientUnit; systemd.scope(5). What systemd-run(1) does for
`--user --scope -p Delegate=yes`, from inside: the caller stays the same process. jeepney is
imported here only, by who asks for a scope.
"""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING, Any, Self

from ocisbx.errors import CgroupError
from ocisbx.probe.cgroups import read_text, unified_path
from ocisbx.probe.speed import slowness

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

# On an ordinary machine; a slow one gets as many times more (probe.speed).
TIMEOUT_S = 5.0
REMEDY = "`systemctl --user status` tells how the manager does; `ocisbx doctor` what else there is"

BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
# Any D-Bus peer answers it.
PEER = (MANAGER[0], "/", "org.freedesktop.DBus.Peer")
# systemd (252, 257) takes in what comes at once with the end of the greeting, and looks at it only
# when more comes: it is sent more when it has not answered for so long.
NUDGE_S = 0.2
JOBS = f"type='signal',sender='{MANAGER[0]}',interface='{MANAGER[2]}',member='JobRemoved'"


class _Refused(Exception):
    """The other side answered with an error, or its job failed."""


def scope_name() -> str:
    """As probe.cgroups.OWN_SCOPE knows it."""
    return f"ocisbx-{os.getpid()}-{os.urandom(4).hex()}.scope"


def enter_scope(
    buses: Iterable[str], timeout_s: float | None = None, own: str = "/proc/self/cgroup"
) -> None:
    """Returns in the new scope; asks at each of the sockets until one answers.

    Raises:
        CgroupError: none of them could do it within `timeout_s` (None: as long as this machine
            may take).
    """
    limit_s = TIMEOUT_S * slowness() if timeout_s is None else timeout_s
    name, deadline = scope_name(), time.monotonic() + limit_s
    troubles = []
    for path in buses:
        try:
            with _Line(path, deadline) as line:
                line.start_scope(name)
        except TimeoutError:
            troubles.append(f"{path}: no answer within {limit_s:.3g} s")
        except (BrokenPipeError, ConnectionResetError):
            troubles.append(f"{path}: it went away meanwhile")
        except OSError as error:
            troubles.append(f"{path}: {(error.strerror or str(error)).lower()}")
        # ValueError: it refuses who we are (jeepney's AuthenticationError), or has no such path.
        except (ValueError, _Refused) as error:
            troubles.append(f"{path}: {error}")
        if os.path.basename(unified_path(read_text(own)) or "") == name:
            return
    raise CgroupError(
        "the systemd user manager gave us no cgroup of our own",
        why="; ".join(troubles) or "no socket of it is there",
        remedy=REMEDY,
    )


class _Line:
    """A connection to a bus, or to the manager's own socket, on which one time limit lies.

    jeepney's own connection greets the bus without a limit, and the manager itself knows no
    greeting.
    """

    def __init__(self, path: str, deadline: float) -> None:
        from jeepney import Parser  # noqa: PLC0415 -- only who needs a scope pays for it
        from jeepney.io.blocking import prep_socket  # noqa: PLC0415

        self._deadline = deadline
        self._has_bus = not path.endswith("/systemd/private")
        self._parser = Parser()
        self._serial = 0
        # Results of jobs, by the job's path: one may end before we know that it is ours.
        self._ended: dict[str, str] = {}
        self._socket: socket.socket = prep_socket(path, timeout=self._left())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def start_scope(self, name: str) -> None:
        """Ask for it and wait until the job is done."""
        if self._has_bus:
            self._call(BUS, "Hello")
            self._call(BUS, "AddMatch", "s", (JOBS,))
        self._call(MANAGER, "Subscribe")
        properties = [
            ("Description", ("s", "cgroups of ocisbx's sandboxes")),
            ("Slice", ("s", "app.slice")),
            ("CollectMode", ("s", "inactive-or-failed")),
            ("Delegate", ("b", True)),
            # 0 is who asks, whatever its number is in the manager's pid namespace.
            ("PIDs", ("au", [0])),
        ]
        body: tuple[Any, ...] = (name, "fail", properties, [])
        (job,) = self._call(MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", body)
        result = self._wait_for_job(job)
        if result != "done":
            raise _Refused(f"its job to start {name} ended as {result}")

    def _call(
        self,
        whom: tuple[str, str, str],
        method: str,
        signature: str = "",
        body: tuple[Any, ...] = (),
    ) -> tuple[Any, ...]:
        from jeepney import HeaderFields, MessageType  # noqa: PLC0415

        serial = self._send(whom, method, signature, body)
        while True:
            reply = self._receive()
            if reply.header.fields.get(HeaderFields.reply_serial) != serial:
                continue
            if reply.header.message_type is MessageType.error:
                told = reply.header.fields.get(HeaderFields.error_name)
                raise _Refused(f"{method}: {', '.join(map(str, (told, *reply.body[:1])))}")
            answer: tuple[Any, ...] = reply.body
            return answer

    def _send(
        self, whom: tuple[str, str, str], method: str, signature: str, body: tuple[Any, ...]
    ) -> int:
        """Send a call; its answer has the number that is returned."""
        from jeepney import DBusAddress, new_method_call  # noqa: PLC0415

        service, path, interface = whom
        address = DBusAddress(path, bus_name=service, interface=interface)
        message = new_method_call(address, method, signature or None, body)
        self._serial += 1
        self._socket.settimeout(self._left())
        self._socket.sendall(message.serialise(serial=self._serial))
        return self._serial

    def _wait_for_job(self, job: str) -> str:
        while job not in self._ended:
            self._receive()
        return self._ended[job]

    def _receive(self) -> Any:  # noqa: ANN401 -- jeepney has no types
        from jeepney import HeaderFields  # noqa: PLC0415

        try:
            while (message := self._parser.get_next_message()) is None:
                self._parser.add_data(self._read())
        # jeepney expects what it reads to be sound.
        except (LookupError, TypeError, ValueError, struct.error) as error:
            raise _Refused(f"what it answers is no D-Bus ({error!r})") from error
        if message.header.fields.get(HeaderFields.member) == "JobRemoved":
            _, job, _, result = message.body
            self._ended[job] = result
        return message

    def _read(self) -> bytes:
        while True:
            self._socket.settimeout(min(NUDGE_S, self._left()))
            try:
                data = self._socket.recv(4096)
            except TimeoutError:
                # A bus has nothing to take in before it has answered to Hello.
                if not self._has_bus:
                    self._send(PEER, "Ping", "", ())
                continue
            if not data:
                raise ConnectionResetError
            return data

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
