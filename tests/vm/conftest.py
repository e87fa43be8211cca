"""Tests of what only a machine with systemd and cgroup v2 has: they run in guests of tools/vm.

In a guest pytest collects them as it does everywhere. On a host each file is one test for each
guest: it runs the file in there. The first guest has all tests, the others those marked
`every_guest`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MASS_PERCENT
from tools.vm_recipe import AGENT, GUESTS, TREE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest._code.code import TerminalRepr
    from _pytest.terminal import TerminalReporter

ROOT = Path(__file__).resolve().parents[2]
IN_GUEST = Path("/", AGENT).is_dir()
_FIRST = next(iter(GUESTS))
# Emulated, a process takes twenty times as long to start.
_TEST_LIMIT_S = 400
_FILE_LIMIT_S = 1200


class GuestFailedError(Exception):
    """What the guest's pytest has printed, or what kept it from starting."""


class GuestFile(pytest.File):
    """A file of tests, on a host."""

    def collect(self) -> Iterator[GuestRun]:
        everywhere = "mark.every_guest" in self.path.read_text(encoding="utf-8")
        for suite in GUESTS if everywhere else (_FIRST,):
            yield GuestRun.from_parent(self, name=suite)


class GuestRun(pytest.Item):
    """Runs a file of tests in a guest; passes when all of them do."""

    def __init__(self, name: str, parent: GuestFile) -> None:
        super().__init__(name, parent)
        self.add_marker(pytest.mark.vm)
        more = max(1, self.config.getoption("--mass") / MASS_PERCENT)
        self.add_marker(pytest.mark.timeout(_FILE_LIMIT_S * more))

    def runtest(self) -> None:
        chosen = [] if self.name == _FIRST else ["-m", "every_guest"]
        pytest_command = [
            *["python3", "-P", "-m", "pytest", "-p", "no:cacheprovider", "-q"],
            *[f"--timeout={_TEST_LIMIT_S}", f"--mass={self.config.getoption('--mass')}"],
            *[*chosen, str(self.path.relative_to(ROOT))],
        ]
        machine = [str(ROOT / "tools" / "vm"), "run", "-g", self.name, "-p", f"{ROOT}:{TREE}", "--"]
        done = subprocess.run(
            [*machine, *pytest_command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise GuestFailedError(done.stdout + done.stderr)
        self.user_properties.append(("guest", done.stdout.splitlines()[-1]))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: str | None = None
    ) -> str | TerminalRepr:
        if isinstance(excinfo.value, GuestFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name} in {self.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> GuestFile | None:
    if IN_GUEST:
        return None
    return GuestFile.from_parent(parent, path=module_path)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Tell how many tests each guest's run has had, and how long it took."""
    passed = terminalreporter.stats.get("passed", [])
    ran = [
        (one.nodeid, said) for one in passed for key, said in one.user_properties if key == "guest"
    ]
    if ran:
        terminalreporter.section("in guests")
        for node, said in sorted(ran):
            terminalreporter.write_line(f"{node}: {said}")
