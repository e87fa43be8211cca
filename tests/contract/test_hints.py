"""Why a command was not found or not executed: one line, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ocisbx.result import Termination
from tests.contract.conftest import of_each_kind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime

REPORT = "the payload's end is reported by the init"
FILES = {
    "script": ("#!/no/such/interpreter\n", 0o755),
    "plain": ("#!/bin/sh\n", 0o644),
    "data": ("\x01\x02", 0o755),
}


@of_each_kind
@pytest.mark.parametrize(
    ("command", "why", "remedy"),
    [
        ("no-such-program", "neither in the container nor on the host", "install it"),
        ("echo one | cat", "neither in the container nor on the host", "sh -c 'echo one | cat'"),
        ("./script", "its interpreter /no/such/interpreter does not exist", "first line"),
        ("./plain", "has no execute bit", "chmod +x"),
        ("./data", "neither a program of this machine nor a script", "sh SCRIPT"),
        ("/usr/bin", "is a directory", "name a program"),
    ],
)
def test_each_reason_has_a_remedy(box: Box, command: str, why: str, remedy: str) -> None:
    for name, (text, mode) in FILES.items():
        (box.workspace / name).write_text(text)
        (box.workspace / name).chmod(mode)
    result = box.run([command])
    if box.lacks(REPORT):
        assert result.shell_exit_code in (126, 127)
        return
    assert result.termination in (Termination.NOT_FOUND, Termination.NOT_EXECUTABLE)
    assert result.hint is not None
    assert why in result.hint.why
    assert remedy in result.hint.remedy


@of_each_kind
@pytest.mark.parametrize("command", ["ls", "/usr/bin/ls"])
def test_a_program_that_an_unpacked_root_does_not_have(
    box: Box, tmp_path: Path, command: str
) -> None:
    """Showing the host's /usr in somebody else's root would be no remedy."""
    (tmp_path / "root" / "opt").mkdir(parents=True)
    result = box.run([command], rootfs=f"{tmp_path}/root")
    if box.lacks(REPORT):
        assert result.shell_exit_code == 127
        return
    assert result.termination is Termination.NOT_FOUND
    assert result.hint is not None
    assert "is not in the root that --rootfs names" in result.hint.why
    assert "--rootfs host" in result.hint.remedy
