"""record.json: a container in the background, from its creation until it is removed.

containers/ID/ of the state directory, written by the container's supervisor alone:

record.json     what it is, and which process supervises it
started.json    when its payload was started; not there: it has not been
stdout, stderr  what the payload wrote, up to the cap
times           when how much had been written (background/times.py)
result.json     how it ended; not there: it has not, or its supervisor was killed

Each of the three documents is whole or not there. What state a container is in follows from which
of them are there and from whether the supervisor lives; no clock is asked.
"""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from typing import Any, NamedTuple

from ocisbx.bundle.owner import read_regular, runs
from ocisbx.places import find_places, trusted
from ocisbx.probe.processes import boot_id, own_start_time, pid_namespace
from ocisbx.values import utc_text

RECORD_FILE, STARTED_FILE, RESULT_FILE = "record.json", "started.json", "result.json"


class State(StrEnum):
    """`lost`: its supervisor was killed; the container has ended by itself."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class Supervisor(NamedTuple):
    """A process, for good: a pid alone is reused."""

    pid: int
    start_time: int
    pid_namespace: int
    boot_id: str

    def alive(self) -> bool:
        """True while it runs, and where that cannot be seen from here."""
        here = self.boot_id == boot_id()
        return here and runs(self.pid, self.start_time, self.pid_namespace)


class Record(NamedTuple):
    """A container in the background; `created_boot_s` counts from its boot (CLOCK_BOOTTIME)."""

    id: str
    name: str | None
    supervisor: Supervisor
    created_at: str
    created_boot_s: float
    command: list[str]
    workdir: str
    runtime: str
    # The session that started it; empty: none did.
    parent: str = ""

    @property
    def path(self) -> str:
        return directory_of(self.id)

    @property
    def is_session(self) -> bool:
        """Whether it takes many commands: then it has none of its own."""
        return not self.command

    def state(self) -> State:
        """What it is in at this moment."""
        alive = self.supervisor.alive()
        # Asked in this order: who has ended meanwhile has left a result.
        if os.path.exists(f"{self.path}/{RESULT_FILE}"):
            return State.EXITED
        if not alive:
            return State.LOST
        started = os.path.exists(f"{self.path}/{STARTED_FILE}")
        return State.RUNNING if started else State.CREATED

    def to_json(self) -> str:
        document = self._asdict() | {"supervisor": self.supervisor._asdict()}
        return json.dumps(document, ensure_ascii=False)


def directory_of(container_id: str) -> str:
    return f"{find_places().containers}/{container_id}"


def new_record(
    container_id: str,
    name: str | None,
    command: list[str],
    workdir: str,
    runtime: str,
    parent: str = "",
) -> Record:
    """The record of a container that this process supervises."""
    pid = os.getpid()
    return Record(
        id=container_id,
        name=name,
        supervisor=Supervisor(pid, own_start_time(), pid_namespace(), boot_id()),
        created_at=utc_text(),
        created_boot_s=boot_s(),
        command=command,
        workdir=workdir,
        runtime=runtime,
        parent=parent,
    )


def boot_s() -> float:
    """Seconds since boot, those of a suspended machine too: nobody can set this clock back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_record(container_id: str) -> Record | None:
    """The record of this container; None: there is none, or it is damaged."""
    try:
        raw: dict[str, Any] = json.loads(
            read_regular(f"{directory_of(container_id)}/{RECORD_FILE}")
        )
        record = Record(**(raw | {"supervisor": Supervisor(**raw["supervisor"])}))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return record if record.id == container_id and _is_sound(record) else None


def _is_sound(record: Record) -> bool:
    fields: dict[str, Any] = record._asdict()
    numbers = (fields["created_boot_s"], *record.supervisor[:3])
    texts = [fields[name] for name in ("created_at", "workdir", "runtime", "parent")]
    words = fields["command"]
    return (
        all(type(number) in (int, float) for number in numbers)
        and all(isinstance(text, str) for text in [*texts, record.supervisor[3]])
        and isinstance(fields["name"], str | None)
        and isinstance(words, list)
        and all(isinstance(word, str) for word in words)
    )


def read_records() -> list[Record]:
    """Those of this user, in the order in which they were created."""
    containers = find_places().containers
    if not trusted(containers):
        return []
    found = [record for name in os.listdir(containers) if (record := read_record(name)) is not None]
    # Of an earlier boot is earlier; those of one boot by a clock that cannot be set.
    return sorted(found, key=lambda one: (one.supervisor.boot_id == boot_id(), one.created_boot_s))


def recorded_holder(name: str) -> str | None:
    """The id of the container in the background that has this name, until it is removed."""
    return next((record.id for record in read_records() if record.name == name), None)
