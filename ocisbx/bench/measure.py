"""The measuring: sections of rounds, each a call of every launcher in random order."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.bench.crew import Worker, hired
from ocisbx.bench.found import ROWS
from ocisbx.bench.launchers import Job
from ocisbx.bench.results import (
    Failure,
    Key,
    LatencyRound,
    Load,
    Memory,
    Section,
    ThroughputRound,
)
from ocisbx.bench.worker import MODULE
from ocisbx.bench.workloads import WORKLOADS, find
from ocisbx.errors import OcisbxError
from ocisbx.probe.machine import held_by, kernel_memory_bytes, load_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ocisbx.bench.launchers import Launcher
    from ocisbx.bench.results import Recorder

    # What is under way, and the share of the whole that is done.
    Tell = Callable[[str, float], None]
    Crew = dict[str, Worker]

MEMORY_SETTLE_S = 0.5


class Settings(NamedTuple):
    """What is measured, and how often."""

    parts: tuple[str, ...]
    workloads: tuple[str, ...]
    variants: tuple[str, ...]
    concurrency: tuple[int, ...]
    rounds: int
    warm_up: int
    batch_s: float
    batch_rounds: int
    idle: int
    seed: int


def sections(settings: Settings) -> list[Key]:
    """In the order in which they are measured."""
    found: list[Key] = []
    if "latency" in settings.parts:
        found += [
            ("latency", workload, variant, 1)
            for workload in settings.workloads
            for variant in settings.variants
        ]
    if "throughput" in settings.parts:
        found += [("throughput", "true", "default", n) for n in settings.concurrency]
    if "memory" in settings.parts:
        found.append(("memory", "true", "default", settings.idle))
    return found


class Bench:
    """One run over all sections; `directory` is empty, and everything is made below it."""

    def __init__(
        self,
        launchers: Sequence[Launcher],
        settings: Settings,
        recorder: Recorder,
        directory: str,
        tell: Tell,
    ) -> None:
        self._launchers = launchers
        self._settings = settings
        self._recorder = recorder
        self._directory = directory
        self._tell = tell
        # The order of the calls has to differ from round to round, and nothing more.
        self._random = random.Random(settings.seed)  # noqa: S311
        self._jobs = 0

    def run(self) -> None:
        """Measure everything; launchers that fail are recorded, and left out of their section."""
        todo = sections(self._settings)
        for number, key in enumerate(todo):
            if find(WORKLOADS[key[1]]) is None:
                self._fail(key, key[1], "the system does not have it")
                continue
            self._recorder.write(Load(**load_now()))
            measure = {"latency": self._latency, "throughput": self._throughput}.get(
                key[0], self._memory
            )
            measure(key, _Share(self._tell, _words(key), number / len(todo), 1 / len(todo)))
        self._recorder.write(Load(**load_now(), ended=True))

    def _takers(self, key: Key) -> list[Launcher]:
        return [one for one in self._launchers if ROWS[one.row].takes(key[1], key[2])]

    def _job(self, launcher: Launcher, key: Key, **more: Any) -> Job:  # noqa: ANN401 -- of Job
        self._jobs += 1
        place = f"{self._directory}/{self._jobs}"
        job = Job(
            row=launcher.row,
            program=launcher.program,
            target=launcher.target,
            workload=key[1],
            variant=key[2],
            workspace=f"{place}/workspace",
            scratch=f"{place}/scratch",
        )
        return job._replace(**more)

    @contextlib.contextmanager
    def _crew(self, key: Key, share: _Share, lanes: int = 1) -> Iterator[Crew]:
        with contextlib.ExitStack() as stack:
            crew: Crew = {}
            for launcher in self._takers(key):
                share.tell(f"starting {launcher.title}", 0)
                try:
                    worker = hired(self._job(launcher, key, lanes=lanes))
                    crew[launcher.title] = stack.enter_context(worker)
                except (OcisbxError, OSError) as error:
                    self._fail(key, launcher.title, str(error))
            yield crew

    def _fail(self, key: Key, title: str, why: str) -> None:
        self._recorder.write(Failure(**_named(key), failed=title, why=why))

    def _turn(self, key: Key, crew: Crew, **request: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 -- JSON
        """Ask every worker, in random order."""
        answers: dict[str, dict[str, Any]] = {}
        for title in self._random.sample(sorted(crew), len(crew)):
            try:
                answers[title] = crew[title].ask(**request)
            except (OcisbxError, OSError) as error:
                self._fail(key, title, str(error))
                del crew[title]
        return answers

    def _latency(self, key: Key, share: _Share) -> None:
        rounds = self._settings.warm_up + self._settings.rounds
        with self._crew(key, share) as crew:
            for number in range(rounds):
                share.tell(f"round {number + 1} of {rounds}", number / rounds)
                answers = self._turn(key, crew)
                if number < self._settings.warm_up:
                    continue
                columns: dict[str, Any] = {
                    name: {
                        title: answer[name]
                        for title, answer in answers.items()
                        if answer[name] is not None
                    }
                    for name in ("wall_ms", "cpu_ms", "own_ms")
                }
                line = LatencyRound(**_named(key), round=number - self._settings.warm_up, **columns)
                self._recorder.write(line)

    def _throughput(self, key: Key, share: _Share) -> None:
        rounds = self._settings.batch_rounds
        with self._crew(key, share, lanes=key[3]) as crew:
            self._turn(key, crew, seconds=self._settings.batch_s / 4)
            for number in range(rounds):
                share.tell(f"round {number + 1} of {rounds}", number / rounds)
                answers = self._turn(key, crew, seconds=self._settings.batch_s)
                columns: dict[str, Any] = {
                    name: {title: answer[name] for title, answer in answers.items()}
                    for name in ("calls", "elapsed_s", "p50_ms", "p99_ms")
                }
                self._recorder.write(ThroughputRound(**_named(key), round=number, **columns))

    def _memory(self, key: Key, share: _Share) -> None:
        takers = [one for one in self._takers(key) if ROWS[one.row].hold is not None]
        columns: dict[str, Any] = {"processes": {}, "pss_bytes": {}, "kernel_bytes": {}}
        for number, launcher in enumerate(takers):
            share.tell(f"{key[3]} idle in {launcher.title}", number / len(takers))
            # Digits: sleep(1) takes it for a part of a second.
            mark = f"{self._random.getrandbits(40):013d}"
            before = kernel_memory_bytes()
            try:
                with hired(self._job(launcher, key, lanes=key[3], mark=mark)) as worker:
                    time.sleep(MEMORY_SETTLE_S)
                    held = held_by(worker.pid, mark, MODULE)
                    grown = kernel_memory_bytes() - before
            except (OcisbxError, OSError) as error:
                self._fail(key, launcher.title, str(error))
                continue
            columns["processes"][launcher.title] = held.processes
            columns["pss_bytes"][launcher.title] = held.pss_bytes
            columns["kernel_bytes"][launcher.title] = grown
        self._recorder.write(Memory(**_named(key), **columns))


class _Share:
    """A section's part in the whole."""

    def __init__(self, tell: Tell, words: str, start: float, width: float) -> None:
        self._tell, self._words, self._start, self._width = tell, words, start, width

    def tell(self, step: str, done: float) -> None:
        self._tell(f"{self._words}: {step}", self._start + self._width * done)


def _words(key: Key) -> str:
    part, workload, variant, concurrency = key
    many = f", {concurrency} at once" if part == "throughput" else ""
    return f"{part}, {workload}{many}" + ("" if variant == "default" else f", {variant}")


def _named(key: Key) -> dict[str, Any]:
    return dict(zip(Section.model_fields, key, strict=True))
