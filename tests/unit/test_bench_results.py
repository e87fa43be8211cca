"""Files of results: what was written is read, and what is no such file is said to be none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.bench.results import Failure, Load, Recorder, read_results
from ocisbx.errors import ConfigError
from tests.unit.bench_files import AT, edited, header, latency, memory, results, throughput, write

if TYPE_CHECKING:
    from pathlib import Path

KEY = ("latency", "true", "default", 1)
COLUMNS = {"posix_spawn": [1.0, 2.0, 3.0], "crun": [4.0, 5.0, 6.0]}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = results(
        tmp_path / "r.jsonl",
        header("posix_spawn", "crun"),
        Load(at=AT["at"], load=3.0),
        *latency(COLUMNS),
        *throughput({"posix_spawn": [9], "crun": [3]}, concurrency=4),
        memory({"crun": 4096}),
    )
    assert found.complete
    assert found.loads == [0.5, 3.0, 0.5]
    assert list(found.sections) == [
        KEY,
        ("throughput", "true", "default", 4),
        ("memory", "true", "default", 4),
    ]
    assert found.launchers_of(KEY) == ["posix_spawn", "crun"]
    assert found.column(KEY, "wall_ms", "crun") == COLUMNS["crun"]
    assert found.column(KEY, "own_ms", "crun") is None


def test_who_missed_a_round_is_left_out_of_the_section(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", header("posix_spawn", "crun"), *latency(COLUMNS))
    edited(path, 2, wall_ms={"posix_spawn": 1.0})
    found = read_results(str(path))
    assert found.launchers_of(KEY) == ["posix_spawn"]
    assert found.column(KEY, "wall_ms", "crun") is None


def test_a_run_that_was_killed_is_read_and_not_complete(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", header("posix_spawn"), *latency(COLUMNS), ended=False)
    path.write_text(path.read_text() + '{"part": "laten')
    found = read_results(str(path))
    assert not found.complete
    assert len(found.sections[KEY]) == 3


def test_failures_are_told(tmp_path: Path) -> None:
    failure = Failure(
        part="latency", workload="true", variant="default", concurrency=1, failed="x", why="y"
    )
    assert results(tmp_path / "r.jsonl", header("posix_spawn"), failure).failures == [failure]


@pytest.mark.parametrize(
    ("number", "changes", "why"),
    [
        (0, {"format": "ocisbx-bench/2"}, ":1 .*format"),
        (0, {"launchers": None}, ":1 .*launchers"),
        (0, {"surprise": 1}, ":1 .*surprise"),
        (1, {"wall_ms": {"posix_spawn": 0}}, ":2 .*greater than 0"),
        (1, {"wall_ms": {"posix_spawn": -1}}, ":2 .*greater than 0"),
        (1, {"wall_ms": {"posix_spawn": float("nan")}}, ":2 .*"),
        (1, {"wall_ms": {"posix_spawn": float("inf")}}, ":2 .*finite"),
        (1, {"wall_ms": {"posix_spawn": "fast"}}, ":2 .*"),
        (1, {"wall_ms": [1, 2]}, ":2 .*"),
        (1, {"round": -1}, ":2 .*round"),
        (1, {"concurrency": 0}, ":2 .*concurrency"),
        (1, {"part": "nonsense"}, ":2 .*nonsense"),
    ],
)
def test_a_line_of_another_form_is_named(
    tmp_path: Path, number: int, changes: dict[str, Any], why: str
) -> None:
    path = write(tmp_path / "r.jsonl", header("posix_spawn", "crun"), *latency(COLUMNS))
    edited(path, number, **changes)
    with pytest.raises(ConfigError, match=why) as error:
        read_results(str(path))
    assert "ocisbx bench --output" in error.value.remedy


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"wall,cpu\n1,2\n", ":1 is no line"),
        (b"{}\n", ":1 is no line"),
        (b"[]\n", ":1 is no line"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=what):
        read_results(str(path))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_results(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_results(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be written"):
        Recorder(str(tmp_path / "missing" / "r.jsonl"))


def test_rounds_without_the_reference_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", header("crun"), *latency({"crun": [1.0]}))
    with pytest.raises(ConfigError, match="rounds without posix_spawn"):
        read_results(str(path))
