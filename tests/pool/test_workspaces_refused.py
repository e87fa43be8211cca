"""Workspaces that a call cannot have: said in words, and no container is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.errors import ConfigError, OcisbxError, RuntimeFailed, Unsupported
from ocisbx.mounts import PER_CALL_PLACE
from ocisbx.places import find_places
from ocisbx.quirks import find_quirks
from tests.box import eventually
from tests.command_line import ocisbx as command_line
from tests.pool.conftest import ABLE, NATIVE, NATIVE_IDS
from tests.pool.test_serve import serving

if TYPE_CHECKING:
    import ocisbx
    from tests.box import Box
    from tests.pool.conftest import Make

pytestmark = pytest.mark.runtime

native = pytest.mark.parametrize("runtime", NATIVE, ids=NATIVE_IDS, indirect=True)
# What is refused before any runtime is asked does not differ among them.
one_of_them = pytest.mark.parametrize("runtime", NATIVE[:1], ids=NATIVE_IDS[:1], indirect=True)
GVISOR = [(one, name) for one, name in ABLE if find_quirks(one.name, one.version).user_kernel]


@pytest.fixture
def pool(make: Make) -> ocisbx.Pool:
    return make(1, workspace="per-call")


@pytest.mark.parametrize(
    "runtime", [one for one, _ in GVISOR], ids=[name for _, name in GVISOR], indirect=True
)
def test_gvisor_says_that_it_cannot(make: Make) -> None:
    with pytest.raises(Unsupported, match="cannot take a workspace per call") as refused:
        make(workspace="per-call").open()
    assert "gVisor serves the files" in refused.value.why
    assert "crun" in refused.value.remedy
    # Its own workspace it takes.
    assert make(1).run(["true"]).exit_code == 0


@one_of_them
@pytest.mark.parametrize(
    ("place", "words"),
    [("/no/such", "does not exist"), ("/etc/hostname", "is not a directory"), ("/", "whole host"),
     ("/home", "everybody's files"), ("/proc/self", "kernel's"), ("/sys/fs", "kernel's"),
     ("/tmp", "temporary files"), ("relative", "expected an absolute directory"),
     ("none", "names no workspace"), (":ro", "names no workspace"), ("", "expected an absolute"),
     ("per-call", "names no workspace"), (7, "text"), ("/\0", "NUL")],
)  # fmt: skip
def test_no_place_for_a_sandbox(pool: ocisbx.Pool, place: Any, words: str) -> None:
    pool.open()
    with pytest.raises(ConfigError, match=words):
        pool.run(["true"], workspace=place)
    # No container was used up for that.
    assert pool.counts.waiting + pool.counts.starting == 1
    assert pool.counts.busy == 0


@one_of_them
def test_homes_and_our_own_directories(box: Box, pool: ocisbx.Pool) -> None:
    home = os.path.realpath(os.environ["HOME"])
    with pytest.raises(ConfigError, match="home directory"):
        pool.run(["true"], workspace=home)
    link = box.base / "link"
    link.symlink_to(home)
    with pytest.raises(ConfigError, match="home directory"):
        pool.run(["true"], workspace=link)
    pool.open()
    with pytest.raises(ConfigError, match="its own state"):
        pool.run(["true"], workspace=find_places().runtime)
    with pytest.raises(ConfigError, match="its own state"):
        pool.run(["true"], workspace=box.run_directory)


@native
def test_a_directory_of_somebody_else(pool: ocisbx.Pool) -> None:
    """As in a cold run: what its owner lets everybody do, and no more."""
    done = pool.run(["sh", "-c", "ls >/dev/null && touch x"], workspace="/usr/share/doc")
    assert done.exit_code == 1
    assert b"denied" in done.stderr
    with pytest.raises(OcisbxError, match="workspace '/root'") as refused:
        pool.run(["true"], workspace="/root")
    assert "ermission denied" in f"{refused.value}"


@one_of_them
def test_a_directory_that_cannot_be_entered(box: Box, pool: ocisbx.Pool) -> None:
    closed = box.base / "closed"
    closed.mkdir(mode=0)
    with pytest.raises(RuntimeFailed, match="permission denied"):
        pool.run(["true"], workspace=closed)
    closed.chmod(0o700)
    assert pool.run(["true"], workspace=closed).exit_code == 0


@one_of_them
def test_a_pool_that_is_read_only(box: Box, make: Make) -> None:
    for fields in ({"workspace": "per-call:ro"}, {"workspace": "per-call", "preset": "locked-down",
                                                  "allow_degraded": ["all"]}):  # fmt: skip
        pool = make(1, **fields)
        with pytest.raises(ConfigError, match="cannot be written in this pool"):
            pool.run(["true"], workspace=f"{box.workspace}:rw")
        done = pool.run(["touch", "x"], workspace=box.workspace)
        assert b"Read-only" in done.stderr


@one_of_them
def test_where_the_workspace_is_fixed(box: Box, make: Make) -> None:
    with pytest.raises(ConfigError, match="the workspace of this pool is fixed"):
        make(1).run(["true"], workspace=box.workspace)


@one_of_them
def test_it_is_for_pools(box: Box) -> None:
    with pytest.raises(ConfigError, match="is for pools"):
        box.run(["true"], workspace="per-call")
    with pytest.raises(ConfigError, match="is for pools"):
        box.session(workspace="per-call").open()
    for words in (["run"], ["run", "--dry-run"], ["bundle", "make", "-o", f"{box.base}/bundle"]):
        done = command_line(box, *words, "--workspace", "per-call", "--", "true")
        assert (done.returncode, done.stdout) == (125, "")
        assert "is for pools" in done.stderr


@one_of_them
def test_nothing_else_is_mounted_there(box: Box, make: Make) -> None:
    for fields in (
        {"volumes": [f"{box.workspace}:{PER_CALL_PLACE}"]},
        {"volumes": [f"{box.workspace}:{PER_CALL_PLACE}/below"]},
        {"tmpfs": {PER_CALL_PLACE: "1M"}},
    ):
        with pytest.raises(ConfigError, match="nothing can be mounted at"):
            make(1, workspace="per-call", **fields).open()


@one_of_them
def test_a_volume_that_shows_the_workspace_too(box: Box, make: Make) -> None:
    """What is protected in the one would be open in the other."""
    ours = box.workspace / "project"
    ours.mkdir()
    pool = make(1, workspace="per-call", volumes=[f"{box.workspace}:/all"])
    with pytest.raises(ConfigError, match="does not fit this pool") as refused:
        pool.run(["true"], workspace=ours)
    assert "what is mounted at '/all/project'" in refused.value.why
    other = box.base / "other"
    other.mkdir()
    assert pool.run(["touch", "/all/project/x", "y"], workspace=other).exit_code == 0


@one_of_them
@pytest.mark.parametrize("mine", [True, False])
def test_a_volume_that_a_payload_replaced_by_a_link(box: Box, make: Make, *, mine: bool) -> None:
    """Neither its own next call nor one with another workspace is shown what the link leads to."""
    (box.workspace / "data").mkdir()
    other, secret = box.base / "other", box.base / "secret"
    other.mkdir()
    secret.mkdir()
    (secret / "secret").write_text("")
    pool = make(1, workspace="per-call", volumes=[f"{box.workspace}/data:/data"])
    swap = f"rmdir data && ln -s {secret} data"
    assert pool.run(["sh", "-c", swap], workspace=box.workspace).exit_code == 0
    shown, refused = [], []
    for _ in range(4):
        try:
            # A container that was ready before has what was there before.
            done = pool.run(["ls", "/data"], workspace=box.workspace if mine else other)
            shown.append(done.stdout)
        except OcisbxError as error:
            refused.append(f"{error}")
    assert set(shown) <= {b""}
    assert "link" in refused[-1]


@one_of_them
def test_what_may_be_written_that_a_payload_made_a_link(box: Box, make: Make) -> None:
    """Another call's workspace does not hold the link, and is not shown what it leads to."""
    places = box.base / "places"
    ours, other, secret = places / "ours", places / "other", box.base / "secret"
    for path in (ours, other, secret):
        path.mkdir(parents=True)
    (secret / "secret").write_text("kept")
    pool = make(1, workspace="per-call", filesystem={"allow_write": [f"{places}/*/out"]})
    assert pool.run(["ln", "-s", str(secret), "out"], workspace=ours).exit_code == 0
    refused = []
    steal = ["sh", "-c", f"echo y >>{secret}/secret; true"]
    for workspace in (other, None, None, None, other):
        try:
            assert pool.run(steal, workspace=workspace).exit_code == 0
        except OcisbxError as error:
            refused.append(f"{error}")
    assert (secret / "secret").read_text() == "kept"
    assert any("may have put a link there" in one for one in refused), refused


@one_of_them
def test_a_runtime_in_the_workspace(box: Box, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier payload may have written is not run; read-only it may be shown."""
    own = box.workspace / "bin"
    own.mkdir()
    copy = own / box.runtime.name
    copy.write_bytes(Path(box.runtime.path).read_bytes())
    copy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin:/bin")
    pool = make(1, workspace="per-call", runtime={"names": [str(copy)]})
    assert pool.run(["true"], workspace=box.workspace).exit_code == 0
    written = f"echo x >{PER_CALL_PLACE}/bin/{box.runtime.name}"
    assert pool.run(["sh", "-c", written], workspace=box.workspace).exit_code != 0


@one_of_them
def test_a_served_pool(box: Box) -> None:
    path, ours = str(box.base / "pool"), box.base / "ours"
    ours.mkdir()
    with serving(box, path, "--workspace", "per-call") as process:
        script = "pwd; touch made; touch .vscode/x"
        words = ("run", "--pool", path, "--workspace", str(ours), "--", "sh", "-c", script)
        done = command_line(box, *words)
        assert (done.returncode, done.stdout) == (1, f"{PER_CALL_PLACE}\n")
        assert os.listdir(ours) == ["made"]
        done = command_line(box, "run", "--pool", path, "--", "ls", "-A")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        done = command_line(box, "run", "--pool", path, "--workspace", "/etc", "--", "true")
        assert done.returncode == 125
        assert "/etc cannot be the workspace" in done.stderr
        process.terminate()
        assert process.wait(60) == 0
    assert eventually(lambda: box.left() == [])
