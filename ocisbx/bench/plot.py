"""The plot of a run, as SVG or PNG, drawn by matplotlib."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

FORMATS = (".svg", ".png")
WIDTH_IN = 9.0
ROW_IN = 0.27
OURS, OTHERS = "#1f6f8b", "#b8b8b8"
INSTALL = "pip install 'ocisbx[bench]' (or: pip install matplotlib)"


def check(path: str) -> None:
    """Raises ConfigError: it is no picture's name, or matplotlib is missing."""
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise ConfigError(
            f"{path} is neither SVG nor PNG", remedy="let the name end with .svg or .png"
        )
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise ConfigError("a plot needs matplotlib", why=str(error), remedy=INSTALL) from error


def draw(found: Mapping[str, Any], path: str) -> None:
    """Draw the latencies of a report's document: p50 with the way to p99, a panel a workload.

    Raises:
        ConfigError: as `check`; there is no latency in it; the file cannot be written.
    """
    check(path)
    import matplotlib as mpl  # noqa: PLC0415 -- as above

    mpl.use("Agg")
    # The same samples give the same file; text stays text.
    mpl.rcParams |= {"svg.hashsalt": "ocisbx", "svg.fonttype": "none"}
    import matplotlib.pyplot as plt  # noqa: PLC0415 -- as above

    panels = [
        one
        for one in found["sections"]
        if one["part"] == "latency" and one["variant"] == "default" and one["rows"]
    ]
    if not panels:
        raise ConfigError(
            "there is no latency to draw", remedy="measure with --part latency, variant default"
        )
    heights = [len(one["rows"]) + 2 for one in panels]
    figure, axes = plt.subplots(
        len(panels),
        figsize=(WIDTH_IN, ROW_IN * sum(heights) + 0.6),
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
        squeeze=False,
    )
    for axis, one in zip(axes[:, 0], panels, strict=True):
        _panel(axis, one)
    host = found["host"]
    figure.suptitle(
        f"one call, p50 and p99 ({host.get('cpus')} x {host.get('cpu')}, {host.get('kernel')})",
        fontsize=10,
    )
    try:
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.endswith(".svg") else None)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written", why=error.strerror or "") from error
    finally:
        plt.close(figure)


def _panel(axis: Axes, one: Mapping[str, Any]) -> None:
    rows = sorted(one["rows"], key=lambda row: -float(row["p50_ms"]))
    names = [row["launcher"] for row in rows]
    p50 = [row["p50_ms"] for row in rows]
    tails = [max(0.0, row["p99_ms"] - row["p50_ms"]) for row in rows]
    colors = [OURS if name.startswith("ocisbx") else OTHERS for name in names]
    axis.barh(names, p50, color=colors, xerr=[[0.0] * len(p50), tails], ecolor="#606060", capsize=2)
    axis.set_xscale("log")
    # Room for the texts.
    axis.set_xlim(min(p50) / 2, max(row["p99_ms"] for row in rows) * 6)
    for place, row in enumerate(rows):
        text = f" {row['p50_ms']:.3g} ms, {row['ratio']['value']:.3g} x"
        axis.text(row["p99_ms"] * 1.05, place, text, va="center", fontsize=7)
    axis.set_title(f"{one['workload']} (milliseconds, {one['rounds']} rounds)", fontsize=9)
    axis.tick_params(labelsize=7)
