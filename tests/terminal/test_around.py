"""A person's terminal that is another program's, script(1)'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sessions.conftest import CRUN
from tests.terminal.seat import Seat

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

# Of what the container's program is asked: its size, and whether keys and signals arrive.
SCRIPT = "stty size; echo $TERM; trap 'echo caught' INT; read x; echo got $x; read y; exit 7"


@pytest.fixture
def runtime() -> RuntimeBinary:
    return CRUN


def words(box: Box) -> list[str]:
    return [
        "run", "-it", "--runtime", box.runtime.path, "--workspace", str(box.workspace),
        "--", "sh", "-c", SCRIPT,
    ]  # fmt: skip


def talk(seat: Seat, size: bytes) -> None:
    seat.wait_for(size + b"\r\nvt220\r\n")
    seat.type("word\r")
    seat.wait_for(b"got word\r\n")
    seat.type(b"\x03")
    seat.wait_for(b"caught")
    seat.type("\r")
    assert seat.drain_until_end() == 7
    assert seat.is_as_before


def test_of_script(box: Box) -> None:
    recorded = box.base / "typescript"
    with Seat(
        box, *words(box), carrier=lambda line: ["script", "-qe", "-c", line, str(recorded)]
    ) as seat:
        talk(seat, b"30 90")
    assert b"got word" in recorded.read_bytes()
