"""What runtimes do wrong when they hand over a terminal is said, in their own words."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx import TerminalError
from ocisbx.spawned import spawn_plan
from ocisbx.terminal.terminal import ContainerTerminal
from tests.box import eventually, running
from tests.sessions.conftest import CRUN

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

BAD = Path(__file__).parent / "bad_runtime.py"


@pytest.fixture
def runtime() -> RuntimeBinary:
    return CRUN


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ends", "no such device in this runtime"),
        ("hangs", "it had not started the container after 1 s"),
        ("hangs-up", "closed the console socket without a message"),
        ("connects-twice", "a second connection"),
        ("sends-none", "a message without a descriptor"),
        ("sends-two", "more than one descriptor"),
        ("sends-a-file", "not the controlling end of a terminal"),
        ("sends-and-ends", "it went no further"),
        ("lets-another-connect", "the console socket's peer is not the runtime"),
    ],
)
def test_each_is_an_error_soon(box: Box, what: str, words: str) -> None:
    link = box.base / what
    link.symlink_to(BAD)
    sandbox = box.sandbox(terminal=True)
    plan = sandbox.resolve()
    plan = plan._replace(runtime=plan.runtime._replace(path=str(link)), sealed=False, cell="none")
    # Long enough for the others to do what they do.
    patience_s = 1.0 if what == "hangs" else 30.0
    call = sandbox._call(["true"])._replace(holds_terminal=True, start_timeout_s=patience_s)
    started = time.monotonic()
    with pytest.raises(TerminalError) as told:
        ContainerTerminal(spawn_plan(plan, call)).finish()
    assert words in str(told.value)
    assert told.value.remedy
    assert time.monotonic() - started < 20
    # What the runtime forked is killed, but is no child of ours to be waited for.
    assert eventually(lambda: running(str(link)) == [])


def test_a_long_path_needs_no_other_directory(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    long = box.base / ("x" * 150)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    here = os.getcwd()
    with box.sandbox().spawn(["tty"]) as terminal:
        assert os.getcwd() == here
        assert terminal.read(timeout_s=20) == "/dev/pts/0\r\n"
    assert list((long / "ocisbx" / "bundles").iterdir()) == []
