"""Further commands in a container in the background, and files in and out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import ocisbx
from ocisbx import Container
from tests.background.conftest import KINDS
from tests.box import eventually, nap, running
from tests.command_line import ocisbx as command
from tests.command_line import start

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

pytestmark = pytest.mark.runtime


@pytest.mark.parametrize("runtime", KINDS.values(), ids=KINDS)
def test_commands_beside_the_first(yard: Box, runtime: RuntimeBinary) -> None:
    container = yard.sandbox(timeout_s=100).create(["sh", "-c", "echo mine > /tmp/f; sleep 60"])
    container.start()
    assert eventually(lambda: container.exec(["cat", "/tmp/f"]).stdout == b"mine\n")
    result = container.exec(
        ["sh", "-c", "cat; echo $V; pwd; exit 4"], input=b"in\n", env={"V": "v"}, workdir="/tmp"
    )
    assert (result.exit_code, result.stdout) == (4, b"in\nv\n/tmp\n")
    assert container.exec(["nosuchprogram"]).termination == "not_found"
    assert container.exec(["sleep", "60"], timeout_s=0.2).termination == "timed_out"
    assert container.exec(["sh", "-c", "kill -9 $$"]).signal == 9
    assert container.state == "running"
    container.stop()
    with pytest.raises(ocisbx.InvalidState, match="has ended"):
        container.exec(["true"])


def test_exec_from_other_processes(yard: Box) -> None:
    yard.sandbox().create(["sleep", "60"], name="it").start()
    done = command(yard, "exec", "-e", "V=v", "it", "sh", "-c", "echo $V; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "v\n", "err\n")
    assert command(yard, "exec", "-i", "it", "cat", input="text").stdout == "text"
    assert command(yard, "exec", "it", "nosuchprogram").returncode == 127
    assert command(yard, "exec", "--timeout", "0.2", "it", "sleep", "60").returncode == 124
    killed = start(yard, "exec", "it", "sleep", "861234567")
    assert eventually(lambda: b"861234567" in Container.find("it").exec(["ps", "ax"]).stdout)
    killed.kill()
    killed.communicate()
    assert eventually(lambda: b"861234567" not in Container.find("it").exec(["ps", "ax"]).stdout)
    Container.find("it").kill()
    Container.find("it").wait(20)
    refused = command(yard, "exec", "it", "true")
    assert (refused.returncode, "it has ended" in refused.stderr) == (125, True)
    assert command(yard, "exec", "it").returncode == 125


def test_commands_end_with_the_container(yard: Box) -> None:
    container = yard.sandbox().create(["sleep", "60"], name="it").start()
    running = start(yard, "exec", "it", "sleep", "61")
    assert eventually(lambda: b"sleep 61\n" in container.exec(["ps", "axo", "args"]).stdout)
    container.kill()
    assert running.wait(20) != 0
    running.communicate()


def tree(base: Path) -> Path:
    """Files of all kinds that are copied."""
    top = base / "tree"
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "file").write_bytes(os.urandom(300_000))
    (top / "sub" / "run").write_text("#!/bin/sh\n")
    (top / "sub" / "run").chmod(0o755)
    (top / "sub" / "up").symlink_to("../file")
    os.link(top / "file", top / "sub" / "second")
    (top / "a\nb").touch()
    (top / "closed").mkdir()
    (top / "closed" / "in").write_text("in")
    (top / "closed").chmod(0o555)
    return top


def seen(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = "directory"
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o111)
    return found


@pytest.mark.parametrize("runtime", KINDS.values(), ids=KINDS)
def test_trees_in_and_out(yard: Box, tmp_path: Path, runtime: RuntimeBinary) -> None:
    top = tree(tmp_path)
    container = yard.sandbox().create(["sleep", "60"]).start()
    container.put(str(top), "/tmp")
    container.put(str(top / "sub" / "run"), "/tmp/renamed")
    assert container.exec(["cat", "/tmp/renamed"]).stdout == b"#!/bin/sh\n"
    out = tmp_path / "out"
    out.mkdir()
    container.get("/tmp/tree", str(out))
    assert seen(out / "tree") == seen(top)
    container.get("/tmp/renamed", str(out / "single"))
    assert (out / "single").read_text() == "#!/bin/sh\n"
    with pytest.raises(ocisbx.OcisbxError, match="File exists"):
        container.get("/tmp/renamed", str(out / "single"))
    with pytest.raises(ocisbx.OcisbxError, match="No such file"):
        container.get("/tmp/nothing", str(out))
    with pytest.raises(ocisbx.OcisbxError, match=r"cannot be copied|Read-only"):
        container.put(str(top / "file"), "/usr")
    with pytest.raises(ocisbx.ConfigError, match="is not there"):
        container.put(str(tmp_path / "nothing"), "/tmp")
    (top / "closed").chmod(0o755)
    (out / "tree" / "closed").chmod(0o755)


# What a hostile container may hand out in place of what was asked for: Python's own tar of these.
HOSTILE = """
import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
def add(name, kind=tarfile.REGTYPE, link="", data=b"x"):
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.mode = kind, link, 0o7777
    one.size = len(data) if kind == tarfile.REGTYPE else 0
    out.addfile(one, io.BytesIO(data) if one.size else None)
add("d", tarfile.DIRTYPE)
CASE
out.close()
"""
CASES = {
    "dot-dot": 'add("d/../../escaped")',
    "absolute": 'add("/tmp/escaped")',
    "another name": 'add("escaped")',
    "through a link": 'add("d/l", tarfile.SYMTYPE, "inner"); add("d/l/escaped")',
    "link out": 'add("d/l", tarfile.SYMTYPE, "../../escaped")',
    "absolute link": 'add("d/l", tarfile.SYMTYPE, "/etc/passwd")',
    "hard link out": 'add("d/l", tarfile.LNKTYPE, "d/../../outside")',
    "hard link through a link": (
        'add("d/s", tarfile.SYMTYPE, "inner"); add("d/l", tarfile.LNKTYPE, "d/s")'
    ),
    "fifo": 'add("d/p", tarfile.FIFOTYPE)',
    "device": 'add("d/p", tarfile.CHRTYPE)',
    "over a file": 'add("d/f"); add("d/f", data=b"again")',
    "root replaced": 'add("d", tarfile.SYMTYPE, "outside")',
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_would_leave_the_tree_is_refused(yard: Box, tmp_path: Path, case: str) -> None:
    """A `tar` of the container's own, which lies."""
    (tmp_path / "outside").write_text("secret")
    out = tmp_path / "out"
    out.mkdir()
    (out / "outside").mkdir()
    liar = yard.workspace / "tar"
    liar.write_text("#!/usr/bin/python3 -IS\n" + HOSTILE.replace("CASE", case))
    liar.chmod(0o755)
    path = f"{yard.workspace}:/usr/bin:/bin"
    container = yard.sandbox(env={"set": {"PATH": path}}).create(["sleep", "60"]).start()
    with pytest.raises(ocisbx.OcisbxError):
        container.get("/d", str(out))
    assert not list(tmp_path.rglob("escaped"))
    assert [*(out / "outside").iterdir()] == []
    assert (tmp_path / "outside").read_text() == "secret"


def test_modes_are_plain_and_links_inside_are_taken(yard: Box, tmp_path: Path) -> None:
    liar = yard.workspace / "tar"
    case = 'add("d/f"); add("d/l", tarfile.SYMTYPE, "f"); add("d/h", tarfile.LNKTYPE, "d/f")'
    liar.write_text("#!/usr/bin/python3 -IS\n" + HOSTILE.replace("CASE", case))
    liar.chmod(0o755)
    path = f"{yard.workspace}:/usr/bin:/bin"
    container = yard.sandbox(env={"set": {"PATH": path}}).create(["sleep", "60"]).start()
    container.get("/d", str(tmp_path))
    assert (tmp_path / "d" / "f").stat().st_mode & 0o7777 == 0o777
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o777
    assert (tmp_path / "d" / "l").readlink() == Path("f")
    assert (tmp_path / "d" / "h").read_text() == "x"


def test_cp_of_the_command_line(yard: Box) -> None:
    yard.sandbox().create(["sleep", "60"], name="it").start()
    (yard.workspace / "in").write_text("text")
    assert command(yard, "cp", "in", "it:/tmp/there").returncode == 0
    assert command(yard, "cp", "it:/tmp/there", "back").returncode == 0
    assert (yard.workspace / "back").read_text() == "text"
    for words in (["in", "back"], ["it:/tmp/there", "it:/tmp/x"], ["it:/tmp/there"]):
        assert command(yard, "cp", *words).returncode == 125
    missing = command(yard, "cp", "it:/nothing", "x")
    assert (missing.returncode, "No such file" in missing.stderr) == (125, True)


def test_a_copy_that_takes_long_says_what_it_does(yard: Box) -> None:
    mark = nap()
    yard.sandbox().create(["sleep", mark], name="it").start()
    (yard.workspace / "in").write_text("text")
    # The init names the command, too: it is the one with a child.
    assert eventually(lambda: len(running(mark)) == 2)
    (init,) = [one for one in map(psutil.Process, running(mark)) if one.children()]
    init.suspend()
    with start(yard, "cp", "in", "it:/tmp") as copy:
        assert copy.stderr is not None
        assert copy.stderr.readline() == "ocisbx: copying 'in'\n"
        init.resume()
        assert copy.wait() == 0
    assert Container.find("it").exec(["cat", "/tmp/in"]).stdout == b"text"
