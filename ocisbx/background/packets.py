"""What is said on the control socket of a supervisor: one JSON object a packet (design note 7).

A request is `{"verb": VERB, ...}` with the verb's own members; an answer `{"ok": {...}}` or
`{"error": {...}}`. Who asks nothing and only listens hears the end of the supervisor: end of file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
from typing import Any, Final

from ocisbx import errors
from ocisbx.errors import InvalidState, OcisbxError
from ocisbx.places import find_places, trusted

PACKET_BYTES: Final = 1 << 16
CONNECT_S: Final = 5
ANSWER_S: Final = 120.0
# What needs nothing but its attention.
ORDERS_S: Final = 10.0
_CREDENTIALS: Final = struct.Struct("3i")
_INT: Final = struct.Struct("i")
_SIGNALS: Final = frozenset(int(number) for number in signal.valid_signals())
MAX_GRACE_S: Final = 1e9
# struct winsize (ioctl_tty(2)).
MAX_SIZE: Final = 65535


class PacketError(OcisbxError):
    """What came over a control socket is no request, or no answer."""


def encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=True).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The object in a packet. Raises PacketError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PacketError("a control packet is not JSON", why=str(error)[:200]) from None
    if not isinstance(document, dict):
        raise PacketError("a control packet is not an object")
    return document


def decode_request(data: bytes) -> tuple[str, dict[str, Any]]:
    """The verb, and its members as they have to be. Raises PacketError."""
    document = decode(data)
    verb = document.pop("verb", None)
    if not isinstance(verb, str) or verb not in MEMBERS:
        raise PacketError("a control packet asks for no known verb")
    members = MEMBERS[verb]
    if document.keys() != members.keys():
        raise PacketError(f"{verb}: the members are {sorted(members)}")
    for name, sound in members.items():
        if not sound(document[name]):
            raise PacketError(f"{verb}: {name} is wrong")
    return verb, document


def _is_signal(value: object) -> bool:
    return type(value) is int and value in _SIGNALS


def _is_grace(value: object) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= MAX_GRACE_S)  # type: ignore[operator]


def _is_size(value: object) -> bool:
    """null: the one who asks sees nothing."""
    return value is None or (
        isinstance(value, list)
        and len(value) == 2
        and all(type(one) is int and 1 <= one <= MAX_SIZE for one in value)
    )


# Verb: what else the request holds, and how that is checked.
MEMBERS: Final[dict[str, dict[str, Any]]] = {
    "start": {},
    "discard": {},
    "signal": {"number": _is_signal},
    "stop": {"grace_s": _is_grace},
    "usage": {},
    "orders": {},
    "attach": {"size": _is_size},
}


def error_document(error: BaseException) -> dict[str, Any]:
    """An error, for another process."""
    if not isinstance(error, OcisbxError):
        error = OcisbxError(f"unexpected {type(error).__name__}", why=str(error))
    return {
        "type": type(error).__name__,
        "what": error.what,
        "why": error.why,
        "remedy": error.remedy,
        "exit_code": error.exit_code,
    }


def error_of(document: object) -> OcisbxError:
    """The error that another process met, as an exception of the same class."""
    if not isinstance(document, dict):
        return OcisbxError("the supervisor failed")
    kind = getattr(errors, str(document.get("type")), OcisbxError)
    if not (isinstance(kind, type) and issubclass(kind, OcisbxError)):
        kind = OcisbxError
    code = document.get("exit_code")
    return kind(
        str(document.get("what", "")),
        why=str(document.get("why", "")),
        remedy=str(document.get("remedy", "")),
        exit_code=code if type(code) is int else None,
    )


def control_address(directory: int, container_id: str) -> str:
    """Where the socket is; short enough for sun_path (unix(7)) wherever the directory lies."""
    return f"/proc/self/fd/{directory}/{container_id}"


def connect(container_id: str) -> socket.socket | None:
    """The control socket of this container; None: nobody listens there any more.

    Raises:
        InvalidState: the supervisor does not answer, or is somebody else's.
    """
    controls = find_places().controls
    if not trusted(controls):
        return None
    directory = os.open(controls, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Those who wait at a full queue get their turn (unix(7)).
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", CONNECT_S, 0))
    try:
        client.connect(control_address(directory, container_id))
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
        client.close()
        return None
    except OSError as error:
        client.close()
        raise InvalidState(
            f"the supervisor of {container_id} does not answer", why=str(error)
        ) from error
    finally:
        os.close(directory)
    if peer_uid(client) != os.geteuid():
        client.close()
        raise InvalidState(f"the control socket of {container_id} is somebody else's")
    return client


def peer_uid(connection: socket.socket) -> int:
    """Who is at the other end (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid


def ask_orders(container_id: str) -> tuple[dict[str, Any], socket.socket] | None:
    """What a further command in this container needs: its plan and its cgroup, and the socket on
    which its init takes orders; None: there is no supervisor (any more).

    Raises:
        OcisbxError: what the supervisor says is wrong.
    """
    found = _exchange(container_id, "orders", {}, 1, ORDERS_S)
    return None if found is None or not found[1] else (found[0], socket.socket(fileno=found[1][0]))


def ask_attach(
    container_id: str, size: tuple[int, int] | None
) -> tuple[dict[str, Any], socket.socket | None] | None:
    """A connection to the terminal, or the input, of this container (`frames`), and what is told of
    it; without a connection where it has neither; None: there is nobody to ask (any more).

    Raises:
        OcisbxError: what the supervisor says is wrong.
    """
    members = {"size": None if size is None else list(size)}
    found = _exchange(container_id, "attach", members, 1, ORDERS_S)
    if found is None:
        return None
    return found[0], socket.socket(fileno=found[1][0]) if found[1] else None


def ask(container_id: str, verb: str, **members: Any) -> dict[str, Any] | None:  # noqa: ANN401 -- as JSON has them
    """The answer to one request; None: there is no supervisor (any more).

    Raises:
        OcisbxError: what the supervisor says is wrong.
    """
    found = _exchange(container_id, verb, members, 0, ANSWER_S)
    return None if found is None else found[0]


def _exchange(
    container_id: str, verb: str, members: dict[str, Any], descriptors: int, patience_s: float
) -> tuple[dict[str, Any], list[int]] | None:
    client = connect(container_id)
    if client is None:
        return None
    with client:
        client.settimeout(patience_s)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.send(encode({"verb": verb, **members}))
            data, given = hear(client, descriptors)
        except TimeoutError as error:
            what = f"the supervisor of {container_id} has not answered for {patience_s:g} s"
            raise InvalidState(what, remedy="is it stopped? ocisbx ps tells its pid") from error
    if not data:
        return None
    answer = decode(data)
    if "error" in answer:
        raise error_of(answer["error"])
    found = answer.get("ok")
    return found if isinstance(found, dict) else {}, given


def hear(client: socket.socket, most: int = 0) -> tuple[bytes, list[int]]:
    """The next packet, also from one who had hung up before it heard us; empty: there is none."""
    for _ in range(2):
        try:
            return receive(client, PACKET_BYTES, most)
        except ConnectionResetError:
            # Told once; what was said before is still there.
            continue
    return b"", []


def receive(client: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """A packet, and at most so many descriptors with it, which nothing that we start inherits."""
    # Not socket.recv_fds, which forgets its flags (Python 3.11).
    data, control, _, _ = client.recvmsg(
        size, socket.CMSG_LEN(most * _INT.size), socket.MSG_CMSG_CLOEXEC
    )
    given = [
        number
        for level, kind, rights in control
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in _INT.iter_unpack(rights[: len(rights) // _INT.size * _INT.size])
    ]
    return data, given
