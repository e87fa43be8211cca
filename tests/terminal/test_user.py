"""`-u` at a terminal: who a command can be, and what is said where it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command_line import ocisbx
from tests.terminal.conftest import of_each_name

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = [pytest.mark.runtime, of_each_name]
WAYS = pytest.mark.parametrize("way", [("-t",), ()], ids=["-t", "no -t"])
ID = ("sh", "-c", "echo is $(id -u):$(id -g)")


@WAYS
def test_exec_as_somebody_whom_the_container_has_not(yard: Box, way: tuple[str, ...]) -> None:
    assert ocisbx(yard, "run", "-d", "--name", "it", "--", "sleep", "1000").returncode == 0
    done = ocisbx(yard, "exec", *way, "-u", "1234", "it", *ID)
    assert (done.returncode, done.stdout) == (125, "")
    assert "the command cannot become user 1234:1234: " in done.stderr
    assert "ids" in done.stderr
    assert "start the container with --user 1234:1234" in done.stderr


@WAYS
def test_exec_as_who_it_is_already(yard: Box, way: tuple[str, ...]) -> None:
    assert ocisbx(yard, "run", "-d", "--name", "it", "--", "sleep", "1000").returncode == 0
    for user in ("0", "0:0"):
        done = ocisbx(yard, "exec", *way, "-u", user, "it", *ID)
        assert (done.returncode, "is 0:0" in done.stdout) == (0, True), done.stderr


@WAYS
def test_exec_as_another_where_ids_are_mapped(yard: Box, way: tuple[str, ...]) -> None:
    started = ocisbx(
        yard, "run", "-d", "--name", "it", "--user", "0:1", "--cap-add", "SETUID", "--cap-add",
        "SETGID", "--", "sleep", "1000",
    )  # fmt: skip
    if not yard.maps_others:
        assert "cannot run as id 0 here" in started.stderr
        return
    assert started.returncode == 0, started.stderr
    done = ocisbx(yard, "exec", *way, "-u", "1234:4321", "it", *ID)
    # crun needs no subordinate ids for the first one, and maps nobody else.
    alone = yard.runtime.name == "crun"
    assert (done.returncode, "is 1234:4321" in done.stdout) == (
        (125, False) if alone else (0, True)
    ), done.stderr
    assert ("cannot become user 1234:4321" in done.stderr) is alone


@WAYS
def test_run_as_another(yard: Box, way: tuple[str, ...]) -> None:
    done = ocisbx(yard, "run", *way, "-u", "1234", "--", *ID)
    if yard.maps_others:
        assert (done.returncode, "is 1234:1234" in done.stdout) == (0, True), done.stderr
        return
    assert (done.returncode, done.stdout) == (125, "")
    assert "cannot run as id 1234 here" in done.stderr
    assert "leave --user out" in done.stderr or "subordinate" in done.stderr
