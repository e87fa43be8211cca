"""Real programs at real work, in sandboxes of the default preset on the newest runtimes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.box import Box, newest
from tests.box_fixtures import box, cache
from tests.programs.needs import missing

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary

__all__ = ["box", "cache", "runtime"]

PROJECTS = Path(__file__).with_name("projects")

# The kinds of runtimes that each program runs on, on the newest of each that is found here.
KINDS = ("crun", "runc")


NEWEST = [runtime for kind in KINDS for runtime in newest(kind)]


class Work(Protocol):
    """Copies a project into the workspace, and runs a bash script there that has to succeed."""

    def __call__(self, project: str, script: str, **fields: object) -> str: ...


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    assert os.geteuid() != 0, "start these tests with tools/test, which goes on unprivileged"
    assert [found.name for found in NEWEST] == list(KINDS), "tools/test installs runtimes"
    assert not missing(), f"as an administrator run: {missing()}"


@pytest.fixture(params=NEWEST, ids=[f"{found.name}-{found.version}" for found in NEWEST])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found


@pytest.fixture
def work(box: Box) -> Work:
    def run(project: str, script: str, **fields: object) -> str:
        shutil.copytree(PROJECTS / project, box.workspace, dirs_exist_ok=True)
        result = box.run(["bash", "-euo", "pipefail", "-c", script], **fields)
        shown = result.stdout.decode() + result.stderr.decode()
        assert result.exit_code == 0, f"{result.termination} {result.exit_code}\n{shown[-8000:]}"
        return result.stdout.decode()

    return run
