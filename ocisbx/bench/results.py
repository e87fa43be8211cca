"""The file of a run: JSON lines, written as they come. The first says where and how it was
measured, the last that the run came to its end; between them is every sample.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)

from ocisbx.bench.launchers import REFERENCE
from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from typing import IO, Self

T = TypeVar("T")

FORMAT: Literal["ocisbx-bench/1"] = "ocisbx-bench/1"
REMEDY = "give a file that `ocisbx bench --output FILE` wrote"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Part = Literal["latency", "throughput", "memory"]


class Line(BaseModel):
    """Base of the lines: strict, so that a file of another kind is told at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Measured(Line):
    """A launcher that took part; `bare`: the one that it is compared with besides the reference."""

    title: str
    words: str
    version: str
    program: str
    bare: str = ""


class Missing(Line):
    title: str
    why: str


class Header(Line):
    format: Literal["ocisbx-bench/1"]
    ocisbx: str
    host: dict[str, Any]
    settings: dict[str, Any]
    command: list[str]
    at: str
    load: float
    launchers: list[Measured]
    absent: list[Missing]


class Section(Line):
    """What was measured: every line of samples names it."""

    part: Part
    workload: str
    variant: str
    concurrency: int = Field(ge=1)

    @property
    def key(self) -> Key:
        return (self.part, self.workload, self.variant, self.concurrency)


class LatencyRound(Section):
    """One call of every launcher, in the order in which they were made."""

    part: Literal["latency"]
    round: int = Field(ge=0)
    wall_ms: dict[str, Positive]
    cpu_ms: dict[str, NotNegative]
    own_ms: dict[str, NotNegative] = {}


class ThroughputRound(Section):
    """Calls one after the other in each of `concurrency` lanes, for the launchers in turn."""

    part: Literal["throughput"]
    round: int = Field(ge=0)
    calls: dict[str, int]
    elapsed_s: dict[str, Positive]
    p50_ms: dict[str, Positive]
    p99_ms: dict[str, Positive]


class Memory(Section):
    """What so many idle containers (`concurrency`) hold; null: it cannot be read."""

    part: Literal["memory"]
    processes: dict[str, int]
    pss_bytes: dict[str, int | None]
    kernel_bytes: dict[str, int]


class Failure(Section):
    failed: str
    why: str


class Load(Line):
    """When a section began, or (`ended`) the run ended, and how busy the machine was."""

    at: str
    load: float
    ended: bool = False


Key = tuple[str, str, str, int]
Sample = LatencyRound | ThroughputRound | Memory
AnyLine = Failure | Load | LatencyRound | ThroughputRound | Memory


def _kind(line: object) -> str:
    """Which line it means to be."""
    if not isinstance(line, dict) or "part" not in line:
        return "load"
    return "failure" if "failed" in line else str(line["part"])


LINES: TypeAdapter[AnyLine] = TypeAdapter(
    Annotated[
        Annotated[Failure, Tag("failure")]
        | Annotated[Load, Tag("load")]
        | Annotated[LatencyRound, Tag("latency")]
        | Annotated[ThroughputRound, Tag("throughput")]
        | Annotated[Memory, Tag("memory")],
        Discriminator(_kind),
    ]
)


class Results:
    """A file that was read."""

    def __init__(self, path: str, header: Header, lines: list[AnyLine]) -> None:
        self.path = path
        self.header = header
        self.failures = [line for line in lines if isinstance(line, Failure)]
        self.loads = [header.load, *(line.load for line in lines if isinstance(line, Load))]
        self.complete = any(isinstance(line, Load) and line.ended for line in lines)
        self.sections: dict[Key, list[Sample]] = {}
        for line in lines:
            if isinstance(line, (LatencyRound, ThroughputRound, Memory)):
                self.sections.setdefault(line.key, []).append(line)

    def column(self, key: Key, field: str, launcher: str) -> list[float] | None:
        """The samples of one launcher in the order of the rounds; None: it lacks one."""
        rounds = [getattr(sample, field) for sample in self.sections.get(key, ())]
        if not rounds or any(launcher not in found for found in rounds):
            return None
        return [found[launcher] for found in rounds]

    def launchers_of(self, key: Key) -> list[str]:
        """Those that went through the whole section, in the order of the table."""
        field = {"latency": "wall_ms", "throughput": "elapsed_s", "memory": "processes"}[key[0]]
        titles = [launcher.title for launcher in self.header.launchers]
        return [title for title in titles if self.column(key, field, title) is not None]


def read_results(path: str) -> Results:
    """Read a file.

    Raises:
        ConfigError: it cannot be read, or is not one, with the line that tells.
    """
    try:
        with open(path, encoding="utf-8") as file:
            texts = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or "" if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read", why=why, remedy=REMEDY) from error
    if not texts:
        raise ConfigError(f"{path} is empty", remedy=REMEDY)
    header = _parsed(path, 1, TypeAdapter(Header), texts[0])
    # A run that was killed leaves the last line unfinished.
    whole = len(texts) if _is_json(texts[-1]) else len(texts) - 1
    lines = [_parsed(path, i, LINES, text) for i, text in enumerate(texts[1:whole], 2)]
    results = Results(path, header, lines)
    for key in results.sections:
        if key[0] != "memory" and REFERENCE not in results.launchers_of(key):
            raise ConfigError(
                f"{path}: {' '.join(map(str, key))} has rounds without {REFERENCE}", remedy=REMEDY
            )
    return results


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _parsed(path: str, number: int, adapter: TypeAdapter[T], text: str) -> T:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise ConfigError(
            f"{path}:{number} is no line of a benchmark's results",
            why=f"{place}: {first['msg']}" if place else first["msg"],
            remedy=REMEDY,
        ) from error


class Recorder:
    """Writes a file line by line; what was measured stays, whatever ends the run."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError: it cannot be written."""
        try:
            self._file: IO[str] = open(path, "w", encoding="utf-8")  # noqa: SIM115 -- closed below
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written",
                why=error.strerror or "",
                remedy="--output FILE names another",
            ) from error
        self.path = os.path.abspath(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        self._file.write(line.model_dump_json() + "\n")
        self._file.flush()
