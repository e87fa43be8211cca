"""put and get: what tests/background/test_inside.py shows of trees, and hostile ones, holds here;
this is about what a session adds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from tests.sessions.conftest import ABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime
every = pytest.mark.parametrize("runtime", ABLE.values(), ids=ABLE)


@every
def test_files_and_trees_in_and_out(house: Box, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_bytes(data)
    (top / "a" / "link").symlink_to("b/file")
    with house.session() as session:
        session.put(top, "/tmp/in")
        assert session.run(["cat", "/tmp/in/a/link"]).stdout == data
        session.run("echo more >/tmp/in/a/new", shell=True)
        session.get("/tmp/in", tmp_path / "out")
        session.put(str(top / "a" / "b" / "file"), "/tmp")
        session.get("/tmp/file", str(tmp_path / "file"))
    assert (tmp_path / "out" / "a" / "b" / "file").read_bytes() == data
    assert (tmp_path / "out" / "a" / "link").readlink().as_posix() == "b/file"
    assert (tmp_path / "out" / "a" / "new").read_text() == "more\n"
    assert (tmp_path / "file").read_bytes() == data


def test_limits_and_policy_are_the_commands_and_stay(house: Box, tmp_path: Path) -> None:
    """A session's own caps do not cut what is copied, and hold for its commands afterwards."""
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    fields: dict[str, Any] = {"capture": {"max_bytes": "1k"}, "commands": {"allow": ["head"]}}
    with house.session(**fields, timeout_s=20) as session:
        session.put(tmp_path / "big", "/tmp/big")
        session.get("/tmp/big", tmp_path / "back")
        assert (tmp_path / "back").stat().st_size == 1 << 20
        assert session.run(["head", "-c", "1M", "/tmp/big"]).stdout_truncated
        with pytest.raises(ocisbx.PolicyDenied):
            session.run(["tar", "--version"])


def test_what_is_not_there_and_who_has_ended(house: Box, tmp_path: Path) -> None:
    with house.session() as session:
        with pytest.raises(ocisbx.ConfigError, match="not there"):
            session.put(tmp_path / "none", "/tmp")
        with pytest.raises(ocisbx.OcisbxError, match="cannot be copied"):
            session.get("/tmp/none", tmp_path / "x")
        (tmp_path / "f").touch()
        with pytest.raises(ocisbx.OcisbxError, match="cannot be copied"):
            session.put(tmp_path / "f", "/usr/f")
        assert not (tmp_path / "x").exists()
    with (
        house.session(env={"set": {"PATH": "/nowhere"}}) as session,
        pytest.raises(ocisbx.OcisbxError, match="has no tar"),
    ):
        session.get("/tmp", tmp_path / "x")
