"""[filesystem]: what is denied cannot be written, read or come to be, by any way that we know."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.base import Call, Step
from ocisbx.calls import run_plan
from ocisbx.errors import ConfigError, RuntimeFailed, Unsupported
from ocisbx.result import EnforcementState
from tests.contract.conftest import of_each_kind, refused
from tests.trees import KEPT, attacked, fill, sweep, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime


DENIED = ["one/two/file", "one/two/directory", "new", "one/two/new", "far/away/new"]


STATX = "statx(2) as coreutils 9 calls it"


@pytest.mark.parametrize("place", ["workspace", "volume"])
def test_attacks(box: Box, place: str) -> None:
    if box.lacks(STATX):
        # Its mv, cp and ls fail before they try anything.
        return
    fill(box.workspace)
    before = tree(box.workspace)
    if place == "workspace":
        fields: dict[str, Any] = {"filesystem": {"deny_write": DENIED}}
    else:
        denied = [f"{box.workspace}/{name}" for name in DENIED]
        fields = {
            "filesystem": {"deny_write": denied},
            "workspace": "none",
            "volumes": [f"{box.workspace}:/elsewhere"],
            "workdir": "/elsewhere",
        }
    assert attacked(box, DENIED, preset="yolo", isolation={"level": "restricted"}, **fields) == ""
    sweep(box.workspace)
    assert tree(box.workspace) == before


def test_the_attacks_work_without_rules(box: Box) -> None:
    """So that their failure above means something."""
    if box.lacks(STATX):
        # Its mv, cp and ls fail before they try anything.
        return
    fill(box.workspace)
    done = attacked(box, ["one/two/file", "none", "new"], preset="yolo")
    for name in ("write", "append", "truncate", "rename over", "hard link", "move a parent away"):
        assert f"{name}: {box.workspace}/one/two/file\n" in done
    assert f"create: {box.workspace}/new\n" in done
    fill(box.workspace)
    (box.workspace / "top").write_text("")
    done = attacked(box, ["top", "one/two/directory"], preset="yolo")
    for name in ("create in it", "write in it", "remove in it", "link into it", "remove it all"):
        assert f"{name}: {box.workspace}/one/two/directory\n" in done


# What a rule names that is neither there nor simply missing; the last ones are the preset's.
ODD = {
    "below a file": ["file/name"],
    "in a closed directory": ["closed/name"],
    "in a directory that cannot be written": ["written/name"],
    "a symlink that leads to itself": [],
    "a symlink that leads to nothing": [],
}


@refused
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("verb", ["deny_read", "deny_write"])
def test_a_plan_holds_until_something_changes(box: Box, what: str, verb: str) -> None:
    """Else each call would be compiled anew, and nothing could be started in the background."""
    (box.workspace / "file").write_text(KEPT)
    (box.workspace / "closed").mkdir(0)
    (box.workspace / "written").mkdir(0o555)
    (box.workspace / ".envrc").symlink_to(".envrc")
    (box.workspace / ".bashrc").symlink_to("nothing")
    sandbox = box.sandbox(filesystem={verb: ODD[what]}, allow_degraded=["filesystem"])
    plan = sandbox.resolve()
    assert plan.holds()
    assert sandbox.run(["true"]).exit_code == 0
    assert sandbox.resolve() is plan
    if what == "below a file":
        (box.workspace / "file").unlink()
        (box.workspace / "file").mkdir()
    elif what == "in a closed directory":
        (box.workspace / "closed").chmod(0o755)
    elif what == "in a directory that cannot be written":
        (box.workspace / "written").chmod(0o755)
    elif what == "a symlink that leads to itself":
        (box.workspace / ".envrc").unlink()
    else:
        (box.workspace / ".bashrc").unlink()
        (box.workspace / ".bashrc").symlink_to("another")
    assert not plan.holds()
    assert sandbox.run(["true"]).exit_code == 0


@pytest.mark.parametrize("verb", ["deny_read", "deny_write"])
def test_what_would_be_in_a_file(box: Box, verb: str) -> None:
    """As long as it is one nothing comes to be there."""
    (box.workspace / "file").write_text(KEPT)
    rules = {verb: ["file/name"]}
    script = "cat file; echo x >file; rm -f file; mv file other; mkdir -p file/name; cat file"
    result = box.sh(script, filesystem=rules)
    assert result.stdout.decode() == 2 * KEPT, result.stderr
    assert (box.workspace / "file").read_text() == KEPT
    assert not (box.workspace / "other").exists()
    assert result.enforcement["filesystem"].state is EnforcementState.ENFORCED
    # Who denies the file itself asks for more, whatever comes after.
    both = {"deny_read": ["file", "file/name"]}
    assert box.sh("cat file", filesystem=both).stdout == b""


@pytest.mark.parametrize("name", [".git", ".envrc", ".zed"])
def test_a_symlink_to_itself_is_no_reason_to_fail(box: Box, name: str) -> None:
    """Else one call could see to it that no other runs in that workspace."""
    (box.workspace / name).symlink_to(name)
    result = box.sh("echo up")
    assert result.stdout == b"up\n"
    assert result.enforcement["filesystem"].state is EnforcementState.PARTIAL
    assert os.listdir(box.workspace) == [name]


def test_what_nobody_may_read(box: Box) -> None:
    fill(box.workspace)
    (box.workspace / ".env").write_text("KEY=secret")
    (box.workspace / "link").symlink_to("one/two")
    rules = {"deny_read": ["one/two", "**/.env", "later", "/etc/ssl/certs"]}
    script = (
        "cat .env; ls one/two link link/ /etc/ssl/certs; cat one/two/file link/file; echo x >later;"
        "mv one gone; mv .env gone; mount --bind / one; ln .env x; chmod 777 .env one/two"
    )
    result = box.sh(script, filesystem=rules)
    assert "secret" not in result.stdout.decode()
    assert KEPT not in result.stdout.decode()
    listed = result.stdout.decode().split()
    assert not {"file", "directory", "ca-certificates.crt"} & set(listed)
    assert box.text("cat one/two/file", workspace=str(box.workspace)) == KEPT
    assert not (box.workspace / "later").exists()
    with pytest.raises(Unsupported, match="symlink"):
        box.run(["true"], filesystem={"deny_write": ["link/file"]})


def test_the_innermost_rule_counts(box: Box) -> None:
    if box.lacks(STATX):
        # Its mv, cp and ls fail before they try anything.
        return
    for name in ("a/b/c", "a/x", "outside"):
        (box.base / "ws" / name).mkdir(parents=True)
    outside = box.base / "outside"
    outside.mkdir()
    rules = {"deny_write": ["a", "a/b/c"], "allow_write": ["a/b", str(outside)]}
    script = (
        f"for d in a a/x a/b a/b/c {outside} .; do touch $d/f 2>/dev/null && echo $d; done; true"
    )
    assert box.text(script, filesystem=rules).split() == ["a/b", str(outside), "."]
    ro = f"{box.workspace}:ro"
    assert box.text(script, filesystem=rules, workspace=ro).split() == ["a/b", str(outside)]
    (box.workspace / ".vscode").mkdir()
    lifted = {"allow_write": [".vscode"]}
    assert box.text("touch .vscode/f; ls .vscode", filesystem=lifted) == "f\n"


def test_a_volume_nested_in_what_is_denied(box: Box) -> None:
    if box.lacks(STATX):
        # Its mv, cp and ls fail before they try anything.
        return
    inner = box.base / "inner"
    inner.mkdir()
    (box.workspace / "data").mkdir()
    (box.workspace / "data" / "x").mkdir()
    fields = {"filesystem": {"deny_write": ["data"]}}
    volumes = [f"{inner}:{box.workspace}/data/x"]
    script = "touch data/x/f; touch data/g; ls data data/x"
    assert box.sh(script, volumes=volumes, **fields).stdout.decode() == "data:\nx\n\ndata/x:\nf\n"
    with pytest.raises(ConfigError, match="nothing can be mounted"):
        box.run(["true"], volumes=[f"{inner}:{box.workspace}/data/y"], **fields)


def test_links_are_said_and_refused(box: Box) -> None:
    fill(box.workspace)
    (box.workspace / "hard").hardlink_to(box.workspace / "one/two/file")
    (box.workspace / "soft").symlink_to("one/two/directory")
    for rule, word in (("one/two/file", "hard link"), ("one", "hard link"), ("soft", "symlink")):
        rules = {"deny_write": [rule]}
        with pytest.raises(Unsupported, match=word) as raised:
            box.run(["true"], filesystem=rules)
        assert "--allow-degraded filesystem" in raised.value.remedy
        result = box.sh(
            f"echo x >{rule}; echo x >{rule}/inner; mv one two; true",
            filesystem=rules,
            allow_degraded=["filesystem"],
        )
        entry = result.enforcement["filesystem"]
        assert entry.state is EnforcementState.PARTIAL
        assert word in entry.how
        assert (box.workspace / "one/two/directory/inner").read_text() == KEPT
        assert (box.workspace / "one/two/file").read_text() == KEPT


def test_globs_cover_what_comes_before_the_start(box: Box) -> None:
    """One Sandbox: its plan is not used again where a new path matches."""
    sandbox = box.sandbox(filesystem={"deny_write": ["**/*.lock", "d/**/x?"]})
    script = [
        "sh",
        "-c",
        "for f in a.lock d/e/b.lock d/e/x1 d/e/x12; do echo y >>$f && echo $f; done 2>&-; true",
    ]
    (box.workspace / "d/e").mkdir(parents=True)
    assert sandbox.run(script).stdout.split() == [b"a.lock", b"d/e/b.lock", b"d/e/x1", b"d/e/x12"]
    assert sandbox.run(script).stdout.split() == [b"d/e/x12"]


@pytest.fixture
def outside(box: Box) -> Iterator[Path]:
    path = box.base / "outside"
    path.mkdir()
    (path / "secret").write_text(KEPT)
    yield path
    assert tree(path) == {"secret": KEPT}


def test_a_symlink_that_comes_in_between_gives_nothing_away(box: Box, outside: Path) -> None:
    """Between the plan's check and the runtime's mounts: the runtime follows it."""
    if box.lacks("mounts are compared with the plan before the payload runs"):
        return
    (box.workspace / "a/b").mkdir(parents=True)
    (box.workspace / "a/b/f").write_text(KEPT)
    sandbox = box.sandbox(filesystem={"deny_write": ["a/b/f"]})
    plan = sandbox.resolve()

    def swap(step: Step) -> None:
        if step is Step.BUNDLE_MADE:
            (box.workspace / "a/b").rename(box.workspace / "c")
            (box.workspace / "a/b").symlink_to(outside)
            (outside / "f").write_text("")

    call = Call(
        argv=("sh", "-c", "echo y >a/b/secret; cat a/b/secret"), environment={}, on_step=swap
    )
    try:
        with pytest.raises(RuntimeFailed):
            run_plan(plan, call, audit=False)
    finally:
        (outside / "f").unlink()


@of_each_kind
@pytest.mark.parametrize("allowed", ["sub", "{}/sub", "sub/*", "sub/s*"])
def test_a_symlink_that_a_payload_left_is_no_allowance(
    box: Box, outside: Path, allowed: str
) -> None:
    """What may be written in the workspace is replaced by a link to what may not be."""
    pattern = allowed.format(box.workspace)
    rules = {"allow_write": [pattern]}
    steal = ["sh", "-c", f"cat sub/secret; echo y >sub/secret; echo y >{outside}/secret; true"]
    for sandbox in (box.sandbox(filesystem=rules), box.sandbox()):
        (box.workspace / "sub").mkdir()
        link = f"rm -r sub; ln -s {outside} sub"
        assert sandbox.run(["sh", "-c", link]).exit_code == 0
        for again in (sandbox, box.sandbox(filesystem=rules)):
            if again.config.filesystem.allow_write:
                with pytest.raises(ConfigError, match="a symlink that the payload can change"):
                    again.run(steal)
        (box.workspace / "sub").unlink()


def test_a_symlink_in_what_was_allowed_is_no_volume(box: Box, outside: Path) -> None:
    """Of a workspace that is read-only a directory may be written, and a volume lies in it."""
    (box.workspace / "sub/data").mkdir(parents=True)
    options: dict[str, Any] = {
        "workspace": f"{box.workspace}:ro",
        "filesystem": {"allow_write": ["sub"]},
    }
    link = f"rmdir sub/data; ln -s {outside} sub/data"
    assert box.run(["sh", "-c", link], **options).exit_code == 0
    with pytest.raises(ConfigError, match="a symlink that the payload can change"):
        box.run(["cat", "/data/secret"], volumes=[f"{box.workspace}/sub/data:/data"], **options)


@refused
def test_missing_and_unfit_allowances(box: Box) -> None:
    for path in ("nowhere", "/nowhere/at/all", "/", "/proc/sys", str(box.run_directory / "ocisbx")):
        with pytest.raises(ConfigError):
            box.run(["true"], filesystem={"allow_write": [path]})
    with pytest.raises(ConfigError, match="there is none"):
        box.run(["true"], workspace="none", filesystem={"deny_write": ["x"]})
    (box.workspace / "s/t").mkdir(parents=True)
    with pytest.raises(ConfigError, match="deny_read hides"):
        box.run(["true"], filesystem={"deny_read": ["s"], "allow_write": ["s/t"]})
