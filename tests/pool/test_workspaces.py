"""A workspace that comes with the call: as if it had been there from the start, on every runtime
that shares the host's kernel."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.errors import RuntimeFailed
from ocisbx.mounts import PER_CALL_PLACE
from tests.box import PYTHON, eventually
from tests.command_line import ocisbx as command_line
from tests.pool.conftest import NATIVE, NATIVE_IDS
from tests.trees import ATTACKS, KEPT, fill, repository, sweep, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = pytest.mark.runtime

native = pytest.mark.parametrize("runtime", NATIVE, ids=NATIVE_IDS, indirect=True)
# What ocisbx does by itself does not differ among them.
one_of_them = pytest.mark.parametrize("runtime", NATIVE[:1], ids=NATIVE_IDS[:1], indirect=True)

SECRET = "canary-5d27b0"


@pytest.fixture
def pool(make: Make) -> ocisbx.Pool:
    return make(workspace="per-call")


@pytest.fixture(autouse=True)
def _nothing_is_mounted_here() -> Iterator[None]:
    before = Path("/proc/self/mountinfo").read_text()
    yield
    assert Path("/proc/self/mountinfo").read_text() == before


def directory(box: Box, name: str) -> Path:
    made = box.base / name
    made.mkdir()
    return made


def text(pool: ocisbx.Pool, script: str, workspace: object, **options: Any) -> str:
    """The output of a shell script that has to succeed."""
    result = pool.run(["sh", "-c", script], workspace=workspace, **options)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def mount_options(output: str) -> dict[str, set[str]]:
    """By mount point; of several the last."""
    rows = (line.split() for line in output.splitlines())
    return {row[4]: {*row[5].split(",")} for row in rows}


@native
def test_files_are_the_callers(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    (ours / "in").write_text("in\n")
    script = (
        "pwd; echo $PWD; cat in; echo out >out; mkdir -p a/b; mv out a/b; ln a/b/out hard; id -u"
    )
    assert text(pool, script, ours) == f"{PER_CALL_PLACE}\n{PER_CALL_PLACE}\nin\n0\n"
    assert tree(ours) == {"in": "in\n", "a": None, "a/b": None, "a/b/out": "out\n", "hard": "out\n"}
    assert {path.stat().st_uid for path in ours.rglob("*")} == {os.getuid()}


@native
def test_how_it_is_mounted(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    for workspace, access in ((f"{ours}", "rw"), (f"{ours}:rw", "rw"), (f"{ours}:ro", "ro")):
        found = mount_options(text(pool, "cat /proc/self/mountinfo", workspace))
        below = {point for point in found if point.startswith(PER_CALL_PLACE)}
        assert all({"nosuid", "nodev"} <= found[point] for point in below)
        assert access in found[PER_CALL_PLACE]
        assert all("ro" in found[point] for point in below - {PER_CALL_PLACE})
        assert "shared" not in text(pool, "cat /proc/self/mountinfo", workspace)


@native
def test_read_only_is_respected(box: Box, pool: ocisbx.Pool, make: Make) -> None:
    ours = directory(box, "ours")
    (ours / "in").write_text("in\n")
    always = make(workspace="per-call:ro")
    attempts = "echo x 2>/dev/null >in || echo x >out || rm -f in || touch in || mkdir d"
    for chosen, workspace in ((pool, f"{ours}:ro"), (always, ours), (always, f"{ours}:ro")):
        result = chosen.run(["sh", "-c", attempts], workspace=workspace)
        assert result.exit_code != 0
        assert b"Read-only file system" in result.stderr
    assert tree(ours) == {"in": "in\n"}


@one_of_them
def test_two_calls_see_their_own_only(box: Box, pool: ocisbx.Pool) -> None:
    places = [directory(box, f"place{number}") for number in range(4)]
    seen: dict[Path, str] = {}

    def work(place: Path) -> None:
        for number in range(5):
            text(pool, f"echo {place.name} >{number}; sleep 0.05", place)
        seen[place] = text(pool, "cat [0-9]; ls -d ../*", place)

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {place: f"{place.name}\n" * 5 + "../workspace\n" for place in places}


@native
def test_without_one_there_is_an_empty_directory(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    (ours / "mine").write_text("")
    assert text(pool, "ls", ours) == "mine\n"
    assert text(pool, "pwd; ls -A", None) == f"{PER_CALL_PLACE}\n"
    assert pool.run(["touch", f"{PER_CALL_PLACE}/x"]).exit_code != 0


@one_of_them
def test_where_a_call_starts(box: Box, make: Make) -> None:
    ours = directory(box, "ours")
    (ours / "sub").mkdir()
    pool = make(workspace="per-call", workdir=f"{PER_CALL_PLACE}/sub")
    assert text(pool, "pwd", ours) == f"{PER_CALL_PLACE}/sub\n"
    assert text(pool, "pwd", ours, workdir="/tmp") == "/tmp\n"
    with pytest.raises(RuntimeFailed, match="working directory cannot be entered"):
        pool.run(["true"], workspace=ours, workdir=f"{PER_CALL_PLACE}/none")


@one_of_them
def test_a_link_is_where_it_leads(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    (ours / "in").write_text("in\n")
    (box.base / "link").symlink_to(ours)
    assert text(pool, "cat in", box.base / "link") == "in\n"


# ------------------------------------------------------------------------------- what is protected
@native
def test_protected_paths_hold_as_in_a_cold_run(box: Box, pool: ocisbx.Pool) -> None:
    """Against every attack, the same are let through, and nothing but them."""
    names = [".git/config", ".git/hooks", ".git/commondir", ".vscode", ".claude", ".bashrc", "f"]
    told, left = [], []
    for number in range(2):
        ours = directory(box, f"ours{number}")
        repository(ours)
        (ours / "f").write_text(KEPT)
        command = [PYTHON, "-I", "-S", "-c", ATTACKS, *names]
        if number:
            result = pool.run(command, workspace=ours)
        else:
            result = box.run(command, workspace=str(ours))
        assert (result.exit_code, result.stderr) == (0, b""), result.stderr
        place = PER_CALL_PLACE if number else str(ours)
        told.append(result.stdout.decode().replace(place, ""))
        sweep(ours)
        left.append({name for name in tree(ours) if "objects" not in name})
    assert told[0] == told[1]
    assert {line.split("/")[-1] for line in told[0].splitlines()} == {"f"}
    assert left[0] == left[1]


@one_of_them
def test_what_is_declared_is_as_for_a_cold_run(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    repository(ours)
    cold = box.run(["true"], workspace=str(ours)).enforcement
    assert pool.run(["true"], workspace=ours).enforcement == cold


@one_of_them
def test_rules_of_the_caller(box: Box, make: Make) -> None:
    ours = directory(box, "ours")
    fill(ours)
    rules = {"deny_read": ["one/two/file"], "deny_write": ["one/two/directory", "later"]}
    pool = make(workspace="per-call", filesystem=rules)
    script = (
        "cd one/two; test -r file || echo hidden; cat directory/inner; echo x >new;"
        "for one in directory/inner directory/new ../../later; do (echo x >$one) 2>&1; done;"
        "mv directory d; mv ../two ../t; rmdir ../../later; true"
    )
    said = text(pool, f"({script}) 2>&1", ours)
    assert said.startswith(f"hidden\n{KEPT}")
    assert said.count("Read-only") + said.count("busy") + said.count("directory\n") >= 6
    assert tree(ours).keys() == {
        "one", "one/two", "one/two/file", "one/two/directory", "one/two/directory/inner",
        "one/two/directory/deep", "one/two/directory/deep/er", "one/two/new",
    }  # fmt: skip
    some = make(workspace="per-call:ro", filesystem={"allow_write": ["one/two/directory"]})
    assert text(some, "echo x >one/two/directory/inner; echo y 2>&1 >one/y || echo no", ours)
    assert (ours / "one/two/directory/inner").read_text() == "x\n"
    assert not (ours / "one/y").exists()


@native
def test_nothing_of_ours_is_left_when_a_call_returns(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    for _ in range(8):
        assert text(pool, "(sleep 1000; mkdir .vscode/x) & touch made", ours) == ""
        assert os.listdir(ours) == ["made"]


@native
def test_landlock_reaches_it(box: Box, pool: ocisbx.Pool) -> None:
    """A rule of the place itself would not: the mount covers it."""
    ours = directory(box, "ours")
    result = pool.run(["touch", "made", f"{PER_CALL_PLACE}/../other"], workspace=ours)
    if not result.enforcement["landlock"].actual:
        pytest.skip("this kernel has no Landlock")
    assert os.listdir(ours) == ["made"]
    assert result.exit_code == 1


@native
def test_the_git_of_a_linked_worktree_is_held(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    (ours / ".git").write_text("gitdir: /elsewhere\n")
    script = "echo x >.git; rm -f .git; mv .git other; mkdir .git; cat .git"
    assert text(pool, script, ours) == "gitdir: /elsewhere\n"
    assert os.listdir(ours) == [".git"]


# -------------------------------------------------------------------------------- other ways to it
@one_of_them
def test_with_limits_time_and_an_interpreter(box: Box, make: Make) -> None:
    ours = directory(box, "ours")
    # Where a host can hold it; elsewhere the result says that it does not.
    limited = make(workspace="per-call", limits={"pids": 100}, allow_degraded=["pids"])
    result = limited.run(["touch", "limited"], workspace=ours, limits={"pids": 50}, timeout_s=30)
    assert (result.exit_code, result.enforcement["pids"].requested) == (0, 50)
    slow = limited.run(["sleep", "60"], workspace=ours, timeout_s=0.3)
    assert slow.termination == "timed_out"
    warm = make(workspace="per-call", warm="python3")
    code = "import os; open('warm', 'w').close(); print(os.getcwd(), os.environ['PWD'])"
    result = warm.run_code(code, workspace=ours)
    assert result.stdout.decode() == f"{PER_CALL_PLACE} {PER_CALL_PLACE}\n", result.stderr
    assert sorted(os.listdir(ours)) == ["limited", "warm"]


@one_of_them
def test_in_the_background_and_awaited(box: Box, pool: ocisbx.Pool) -> None:
    ours = directory(box, "ours")
    with pool.start(["cat", "in"], workspace=ours) as running:
        result = running.wait(30)
    assert result is not None
    assert result.exit_code == 1
    (ours / "in").write_text("in\n")

    async def ask() -> ocisbx.RunResult:
        config = pool._sandbox.config
        async with ocisbx.AsyncPool(config, 1) as awaited:
            return await awaited.run(["cat", "in"], workspace=ours)

    assert asyncio.run(ask()).stdout == b"in\n"


@native
def test_many_calls_leave_nothing(box: Box, pool: ocisbx.Pool) -> None:
    """The box looks for descriptors, directories and processes."""
    places = [directory(box, f"place{number}") for number in range(3)]
    for number in range(24):
        place = places[number % 3]
        assert text(pool, "ls | wc -l; touch $$", place).strip().isdigit()


@one_of_them
def test_inspect_tells_of_it(box: Box, make: Make) -> None:
    """It is nothing that config.json did not ask for; and a container that waits has nothing."""
    ours = directory(box, "ours")
    pool = make(1, workspace="per-call")
    with pool.start(["sleep", "60"], workspace=ours) as running:
        assert eventually(lambda: pool.counts.waiting == 1)
        for path in box.bundles.iterdir():
            done = command_line(box, "inspect", path.name, "--posture")
            assert done.returncode == 0, done.stdout
            words = " ".join(done.stdout.split())
            given = f"{ours} at {PER_CALL_PLACE}" in words
            assert given == (path.name == running.id)
