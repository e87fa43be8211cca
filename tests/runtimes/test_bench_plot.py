"""The plot of a bench: matplotlib starts a program for its fonts, once for each user."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from ocisbx.bench.plot import draw
from ocisbx.bench.report import document
from ocisbx.bench.results import Results, read_results
from tests.unit.bench_files import header, latency, write

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"posix_spawn": [1.0] * 30, "crun": [10.0] * 30}


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="an extra: bench")
@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_a_plot_is_drawn(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "r.jsonl", header(*COLUMNS), *latency(COLUMNS))
    results: Results = read_results(str(file))
    draw(document(results), str(tmp_path / name))
    data = (tmp_path / name).read_bytes()
    if name.endswith("svg"):
        assert ElementTree.fromstring(data).tag.endswith("svg")
    else:
        assert data.startswith(b"\x89PNG")
