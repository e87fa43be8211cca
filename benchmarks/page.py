"""Keep a file of `ocisbx bench` as the newest, and make the page, the plot and README's table.

python -m benchmarks.page FILE
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks.common import ROOT
from ocisbx.bench.plot import draw
from tools.bench_page import PAGE, SAMPLES, generate, kept

PICTURES = ("RESULTS.svg", "RESULTS.png")


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args().file
    if file.resolve() != SAMPLES:
        shutil.copyfile(file, SAMPLES)
    for name in PICTURES:
        draw(kept(), str((ROOT / PAGE).with_name(name)))
    for path, text in generate(ROOT).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
