"""tools/build_init.py, with a compiler of the test's own: a script that records its calls."""

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.meta.tree import ROOT
from tools import build_init

ARCH = platform.machine()
COMPILER = """#!/bin/sh
echo "$*" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
grep -q broken "$3" && { echo "$3: broken" >&2; exit 1; }
cat "$3" > "$2"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that receives one line for each call of the compiler."""
    compiler = tmp_path / "path" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    record = tmp_path / "calls"
    record.touch()
    monkeypatch.setenv("PATH", f"{compiler.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(record))
    return record


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "init"
    folder.mkdir()
    for name in ("init.c", "cell.c", "shared.h"):
        (folder / name).write_text(f"/* {name} */\n")
    return folder


def test_programs_are_built_once_and_again_after_a_change(
    tmp_path: Path, sources: Path, calls: Path
) -> None:
    out = tmp_path / "bin"
    built = build_init.build(sources, out, ARCH)
    assert built == [out / f"ocisbx-{name}-{ARCH}" for name in build_init.PROGRAMS]
    assert all(os.access(path, os.X_OK) for path in built)
    made = calls.read_text().splitlines()
    assert len(made) == len(build_init.PROGRAMS)
    assert all("-static" in line and "-nostdlib" in line for line in made)

    build_init.build(sources, out, ARCH)
    assert len(calls.read_text().splitlines()) == len(made)

    (sources / "shared.h").write_text("/* changed */\n")
    build_init.build(sources, out, ARCH)
    assert len(calls.read_text().splitlines()) == 2 * len(made)

    built[0].unlink()
    build_init.build(sources, out, ARCH)
    assert built[0].exists()


@pytest.mark.usefixtures("calls")
def test_a_failed_build_says_why_and_leaves_no_half_of_a_program(
    tmp_path: Path, sources: Path
) -> None:
    (sources / "cell.c").write_text("broken\n")
    with pytest.raises(build_init.BuildError, match=r"cell\.c: broken"):
        build_init.build(sources, tmp_path / "bin", ARCH)
    assert [path.name for path in (tmp_path / "bin").iterdir()] == [f"ocisbx-init-{ARCH}"]


def test_without_a_compiler_the_architecture_is_named(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build_init.BuildError, match="no C compiler for"):
        build_init.build(sources, tmp_path / "bin", "x86_64" if ARCH != "x86_64" else "aarch64")


def test_the_programs_compile_without_a_warning(tmp_path: Path) -> None:
    for command in build_init.compilers(ARCH):
        for name in build_init.PROGRAMS:
            inputs = build_init.sources(build_init.SOURCE_DIR, name)
            strict = [*command, "-Werror"]
            assert build_init.compile_one(strict, inputs, tmp_path / name) == ""


def test_a_wheel_carries_the_programs(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        modes = {entry.filename: entry.external_attr >> 16 for entry in wheel.infolist()}
    for name in build_init.PROGRAMS:
        assert modes[f"ocisbx/init/bin/ocisbx-{name}-{ARCH}"] & 0o111
    assert not [name for name in modes if name.startswith(("tests/", "tools/"))]
    assert "ocisbx/version.py" in modes
