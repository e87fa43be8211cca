"""Generated files are those that the package generates now."""

from pathlib import Path

import pytest

from tests.meta.tree import ROOT, name
from tools.generators import GENERATORS, Generator, differences, write


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.function)
def test_generated_files_are_current(generator: Generator) -> None:
    found = {name(path) for path in differences(generator, ROOT)}
    assert not found, "run tools/generate"


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.function)
def test_differences_are_found_and_mended(generator: Generator, tmp_path: Path) -> None:
    missing = differences(generator, tmp_path)
    assert missing
    for path, text in missing.items():
        write(path, text)
    assert not differences(generator, tmp_path)
    changed = next(iter(missing))
    changed.write_text("changed")
    stray = tmp_path / generator.owns.replace("*", "stray")
    stray.parent.mkdir(exist_ok=True)
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("{}")
    found = differences(generator, tmp_path)
    assert found == {changed: missing[changed], stray: None}
    for path, text in found.items():
        write(path, text)
    assert not differences(generator, tmp_path)
