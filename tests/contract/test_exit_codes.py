"""The exit-code table of interface.md, row by row, and the payloads that look like another row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from ocisbx.result import Termination as T
from tests.contract.conftest import of_each_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime


class Row(NamedTuple):
    """A command and its end."""

    command: list[str]
    termination: T
    exit_code: int | None
    signal: int | None
    shell: int


def exits(code: int) -> Row:
    return Row(["sh", "-c", f"exit {code}"], T.EXITED, code, None, code)


def dies_of(number: int) -> Row:
    return Row(["sh", "-c", f"kill -{number} $$"], T.SIGNALED, None, number, 128 + number)


RUNTIME_WORDS = (
    "runc run failed: unable to start container process: exec: x: executable file not found",
    "ERRO[0000] runc run failed: container init exited prematurely",
    "executable file `x` not found in $PATH: No such file or directory",
    '{"level":"error","msg":"runc run failed: out of memory","time":"2026-01-01T00:00:00Z"}',
    '{ "msg" : "cgroups in hybrid mode not supported", "level" : "error" }',
    "ocisbx: the runtime could not start the container",
)

ROWS = {
    # The payload's own exit codes, among them every one that means something else from us.
    **{f"exit {code}": exits(code) for code in (0, 1, 2, 7, 124, 125, 126, 127, 128)},
    **{f"exit {code}": exits(code) for code in (129, 130, 137, 139, 141, 143, 254, 255)},
    **{f"signal {number}": dies_of(number) for number in (1, 2, 3, 6, 9, 11, 13, 14, 15, 34, 64)},
    "missing": Row(["no-such-program"], T.NOT_FOUND, None, None, 127),
    "missing path": Row(["/usr/bin/no-such-program"], T.NOT_FOUND, None, None, 127),
    "below a file": Row(["/usr/bin/true/x"], T.NOT_FOUND, None, None, 127),
    "missing relative": Row(["./no-such-program"], T.NOT_FOUND, None, None, 127),
    "too long a name": Row(["/" + "x" * 300], T.NOT_FOUND, None, None, 127),
    "too long a bare name": Row(["x" * 300], T.NOT_FOUND, None, None, 127),
    "directory": Row(["/usr/bin"], T.NOT_EXECUTABLE, None, None, 126),
    "a device": Row(["/dev/null"], T.NOT_EXECUTABLE, None, None, 126),
    **{
        f"prints {number}": Row(
            ["sh", "-c", 'echo "$1"; echo "$1" >&2; exit 1', "sh", words], T.EXITED, 1, None, 1
        )
        for number, words in enumerate(RUNTIME_WORDS)
    },
    "prints and kills itself": Row(
        ["sh", "-c", 'echo "$1" >&2; kill -9 $$', "sh", RUNTIME_WORDS[0]], T.SIGNALED, None, 9, 137
    ),
    # The init is not the payload's to signal; the payload goes on.
    "kills process 1": Row(["sh", "-c", "kill -9 1; exit 3"], T.EXITED, 3, None, 3),
    # The init passes it back; where Landlock has scopes it never gets there.
    "is sent its own TERM": Row(
        ["sh", "-c", "trap 'exit 9' TERM; kill -15 1 || exit 9; while :; do sleep 0.01; done"],
        *(T.EXITED, 9, None, 9),
    ),
    "kills everybody": Row(["sh", "-c", "kill -9 -1; exit 4"], T.EXITED, 4, None, 4),
    "kills its group": Row(["sh", "-c", "kill -9 0; exit 4"], T.SIGNALED, None, 9, 137),
    "a child is killed": Row(["sh", "-c", "sh -c 'kill -9 $$'; exit 5"], T.EXITED, 5, None, 5),
    "closes all it has": Row(["sh", "-c", "exec 0<&- 1>&- 2>&-; exit 6"], T.EXITED, 6, None, 6),
}


REPORT = "the payload's end is reported by the init"


def as_status(row: Row) -> Row:
    """What a runtime's exit status alone can tell of it."""
    if row.termination in (T.NOT_FOUND, T.NOT_EXECUTABLE):
        return exits(row.shell)._replace(command=row.command)
    if row.shell > 128:
        return dies_of(row.shell - 128)._replace(command=row.command)
    return row


@of_each_kind
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_table(box: Box, row: Row) -> None:
    check(box, row)


# One for each way in which a payload ends.
EVERYWHERE = ("exit 0", "exit 137", "signal 9", "signal 15", "missing", "a device")


@pytest.mark.parametrize("name", EVERYWHERE)
def test_each_end_on_every_version(box: Box, name: str) -> None:
    check(box, ROWS[name])


def check(box: Box, row: Row) -> None:
    if box.lacks(REPORT):
        row = as_status(row)
    if box.lacks("process 1 is out of the payload's reach") and "kill -9 1;" in row.command[-1]:
        row = dies_of(9)._replace(command=row.command)
    result = box.run(row.command, timeout_s=60)
    assert (
        Row(
            row.command, result.termination, result.exit_code, result.signal, result.shell_exit_code
        )
        == row
    ), result.stderr


def script(text: bytes, mode: int = 0o755) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(text)
        path.chmod(mode)

    return make


FOREIGN_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00" + bytes(44)

FILES = {
    "no execute bit": (script(b"#!/bin/sh\nexit 0\n", 0o644), T.NOT_EXECUTABLE),
    "no first line": (script(b"exit 0\n"), T.NOT_EXECUTABLE),
    "empty": (script(b""), T.NOT_EXECUTABLE),
    "random bytes": (script(b"\x00\x01\x02\xff" * 64), T.NOT_EXECUTABLE),
    "another machine's": (script(FOREIGN_ELF), T.NOT_EXECUTABLE),
    "interpreter without a name": (script(b"#! \n"), T.NOT_EXECUTABLE),
    "interpreter is a directory": (script(b"#!/usr/bin\n"), T.NOT_EXECUTABLE),
    "interpreter is a text": (script(b"#!/etc/passwd\n"), T.NOT_EXECUTABLE),
    "interpreter is missing": (script(b"#!/no/such/interpreter\n"), T.NOT_FOUND),
    "interpreter with a CR": (script(b"#!/bin/sh\r\nexit 0\r\n"), T.NOT_FOUND),
    "link to nowhere": (lambda path: path.symlink_to("nowhere"), T.NOT_FOUND),
    "link to itself": (lambda path: path.symlink_to(path.name), T.NOT_FOUND),
    "a program": (script(b"#!/bin/sh\nexit 0\n"), T.EXITED),
}


SHELL = {T.NOT_FOUND: 127, T.NOT_EXECUTABLE: 126, T.EXITED: 0}


@of_each_kind
@pytest.mark.parametrize(("make", "termination"), FILES.values(), ids=FILES.keys())
def test_files(box: Box, make: Callable[[Path], None], termination: T) -> None:
    make(box.workspace / "program")
    by_name = box.run(["./program"])
    by_path = box.run([f"{box.workspace}/program"])
    if box.lacks(REPORT):
        assert by_name.shell_exit_code == by_path.shell_exit_code == SHELL[termination]
        assert termination is T.EXITED or b"program" in by_name.stderr
        return
    assert (by_name.termination, by_path.termination) == (termination, termination)
    if termination is not T.EXITED:
        assert by_name.shell_exit_code == by_path.shell_exit_code == SHELL[termination]
        assert by_name.hint is not None
        assert by_name.hint.why
        assert (by_name.exit_code, by_name.signal) == (None, None)


def test_a_tool_outside_the_view_names_the_option(box: Box, tmp_path: Path) -> None:
    tool = tmp_path / "tool" / "bin" / "hello"
    tool.parent.mkdir(parents=True)
    script(b"#!/bin/sh\necho hello\n")(tool)
    result = box.run([str(tool)])
    assert result.shell_exit_code == 127
    if box.lacks(REPORT):
        assert str(tool).encode() in result.stderr
        return
    assert result.termination is T.NOT_FOUND
    assert result.hint is not None
    assert result.hint.remedy == f"-v {tmp_path}/tool:ro"
    shown = box.run([str(tool)], volumes=[result.hint.remedy.removeprefix("-v ")])
    assert (shown.exit_code, shown.stdout) == (0, b"hello\n")
