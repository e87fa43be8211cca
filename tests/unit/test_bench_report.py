"""What is made of a file for people and for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ocisbx.bench.markdown import page
from ocisbx.bench.plot import draw
from ocisbx.bench.report import document, number, tables
from ocisbx.bench.results import Failure, Results, read_results
from ocisbx.cli import carry_out
from ocisbx.errors import ConfigError
from tests.unit.bench_files import header, latency, memory, results, throughput, write

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"posix_spawn": [1.0] * 30, "crun": [10.0] * 30, "cold": [12.0] * 30}
FAILURE = Failure(
    part="latency", workload="true", variant="limits", concurrency=1, failed="crun", why="a | b"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rates = {"posix_spawn": [100, 100], "crun": [20, 20], "cold": [16, 16]}
    return write(
        tmp_path / "r.jsonl",
        header(*COLUMNS),
        *latency(COLUMNS),
        *throughput(rates, 1),
        *throughput(rates, 4),
        memory({"posix_spawn": 4 << 20, "crun": None}),
        FAILURE,
    )


def test_ratios_to_the_reference_and_to_the_bare_runtime(file: Path) -> None:
    found = document(results_of(file))
    latencies, one_lane, four_lanes, held = found["sections"]
    cold = latencies["rows"][2]
    assert cold["ratio"] == {"value": 12, "low": 12, "high": 12}
    assert cold["bare_ratio"] == {"value": 1.2, "low": 1.2, "high": 1.2}
    assert latencies["rows"][1]["bare_ratio"] is None
    assert [one["concurrency"] for one in (one_lane, four_lanes)] == [1, 4]
    assert one_lane["rows"][2]["bare_ratio"]["value"] == 0.8
    assert held["rows"] == [
        {"launcher": "posix_spawn", "processes": 2, "pss_bytes": 1 << 20, "kernel_bytes": 4096},
        {"launcher": "crun", "processes": 2, "pss_bytes": None, "kernel_bytes": 4096},
    ]


def results_of(file: Path) -> Results:
    return read_results(str(file))


def test_tables_have_a_cell_in_every_column(file: Path) -> None:
    shown = tables(document(results_of(file)))
    assert [table.title.split(":")[0] for table in shown] == [
        "true",
        "an idle container",
        "calls a second, true",
    ]
    for table in shown:
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_page_tells_where_how_and_what_failed(file: Path) -> None:
    text = page(document(results_of(file)), "plot.svg")
    assert "![one call of each launcher](plot.svg)" in text
    assert "    ocisbx bench\n" in text
    assert "| cold | 12.0 | 12.0 | 12.0 | 12.0 | 0.50 | 12.0 (12.0-12.0) |" in text
    assert "| crun (latency, true, limits) | a \\| b |" in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.12"), (9.876, "9.88"), (12.345, "12.3"), (1234.5, "1234")]
)
def test_three_digits_count(value: float, text: str) -> None:
    assert number(value) == text


def test_a_plot_without_its_library_says_how_to_get_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="needs matplotlib") as error:
        draw(document(results_of(file)), str(tmp_path / "plot.svg"))
    assert "ocisbx[bench]" in error.value.remedy


def test_a_picture_has_a_kind(file: Path) -> None:
    with pytest.raises(ConfigError, match="neither SVG nor PNG"):
        draw(document(results_of(file)), "plot.pdf")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--rounds", "many"], "--rounds"),
        (["--concurrency", "1,x"], "--concurrency"),
        (["--workload", "nod"], "did you mean"),
        (["--part", "speed"], "--part"),
        (["--plot", "x.pdf"], "neither SVG nor PNG"),
        (["extra"], "one word too many"),
        (["show"], "1 FILE expected"),
        (["show", "/missing"], "No such file"),
        (["compare", "/missing"], "2 FILE expected"),
        (["list", "--runtime", "lxc"], "is not a runtime"),
    ],
)
def test_a_wrong_line_is_refused(
    line: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert carry_out(["bench", *line]) == 125
    said = capfd.readouterr()
    assert words in said.err
    assert said.out == ""


@pytest.mark.parametrize("verb", [[], ["list"], ["show"], ["compare"]])
def test_help_fits_a_screen(verb: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert carry_out(["bench", *verb, "--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  ocisbx bench") for line in lines)


def test_a_file_is_shown_and_compared(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert carry_out(["bench", "show", str(file)]) == 0
    assert "failed: crun" in capfd.readouterr().out
    assert carry_out(["bench", "compare", str(file), str(file)]) == 0
    assert capfd.readouterr().out.count("same") == 6
    slow = results(
        file.with_name("slow.jsonl"), header(*COLUMNS), *latency(COLUMNS | {"cold": [20.0] * 30})
    )
    assert carry_out(["bench", "compare", str(file), slow.path]) == 1
    assert "slower" in capfd.readouterr().out
