"""A workspace per call, on described hosts: the empty place for it, and who can have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.backends.compile import Compiled
from ocisbx.backends.late import Given, Late, check_able, opened
from ocisbx.backends.lower import lower
from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.errors import ConfigError, InvalidState, Unsupported
from ocisbx.mounts import PER_CALL_PLACE
from ocisbx.plan import fingerprint
from tests.unit.hosts import RUNSC, directory, make_host

if TYPE_CHECKING:
    from ocisbx.host import Host


def host_of(**changes: Any) -> Host:
    paths = {"/srv/work": directory("/srv/work"), "/srv/data": directory("/srv/data")}
    return make_host(**({"paths": paths} | changes))


def compiled(fields: dict[str, Any] | None = None, **changes: Any) -> Compiled:
    config = SandboxConfig.build({"workspace": "per-call"} | (fields or {}))
    host = host_of(**changes)
    container = resolve(config, host)
    return Compiled(config, host, container, lower(config, container, host))


@pytest.mark.parametrize(
    ("fields", "reaches"),
    [
        ({}, True),
        ({"workspace": "per-call:rw"}, True),
        ({"workspace": "per-call:ro"}, False),
        ({"preset": "locked-down", "allow_degraded": ["all"]}, False),
        ({"preset": "locked-down", "allow_degraded": ["all"], "workspace": "per-call:rw"}, True),
    ],
)
def test_the_place_is_empty_and_landlock_reaches_what_will_be_there(
    fields: dict[str, Any], *, reaches: bool
) -> None:
    container = compiled(fields).container
    [place] = [bind for bind in container.binds if bind.target.startswith("/mnt")]
    assert (place.source, place.target, place.read_only) == ("covers/empty", PER_CALL_PLACE, True)
    assert container.host_side.covers == ("covers/empty",)
    assert container.workdir == PER_CALL_PLACE
    assert ("/mnt" in (container.confinement.writable_paths or ())) == reaches


@pytest.mark.parametrize("workdir", ["/tmp", f"{PER_CALL_PLACE}/sub"])
def test_a_container_starts_where_something_is(workdir: str) -> None:
    inside = workdir.startswith(PER_CALL_PLACE)
    container = compiled({"workdir": workdir}).container
    assert container.workdir == (PER_CALL_PLACE if inside else workdir)


def test_the_rest_is_that_of_a_workspace_from_the_start() -> None:
    late = compiled().container
    placed = resolve(SandboxConfig(workspace="/srv/work"), host_of(), place=PER_CALL_PLACE)
    assert placed.workdir == PER_CALL_PLACE
    assert {bind.target for bind in placed.binds} == {bind.target for bind in late.binds}
    assert placed.root == late.root
    assert placed.tmpfs == late.tmpfs


@pytest.mark.parametrize(
    ("fields", "changes", "words"),
    [
        ({}, {"kernel": "5.11.0"}, "takes Linux 5.12"),
        ({"runtime": {"names": ["runsc"]}}, {"runtimes": (RUNSC,)}, "gVisor serves"),
    ],
)
def test_who_cannot(fields: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    check_able(compiled())
    with pytest.raises(Unsupported) as refused:
        check_able(compiled(fields, **changes))
    assert words in refused.value.why
    assert "a pool for each workspace" in refused.value.remedy


@pytest.mark.parametrize("target", [PER_CALL_PLACE, f"{PER_CALL_PLACE}/x", f"{PER_CALL_PLACE}/x/y"])
def test_the_place_is_taken(target: str) -> None:
    for fields in ({"volumes": [f"/srv/data:{target}"]}, {"tmpfs": {target: "1M"}}):
        with pytest.raises(ConfigError, match="nothing can be mounted at"):
            compiled(fields)
        # With a workspace of its own it is a place like any other.
        compiled({"workspace": "none", **fields})


def test_only_what_was_judged_is_opened(tmp_path: Any) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    other.mkdir()
    seen = fingerprint(str(ours), "identity")
    assert seen is not None
    late = Late(str(ours), seen, False, (), (), (), "/", {}, None)  # noqa: FBT003 -- one row
    with opened(late) as given:
        assert isinstance(given, Given)
        ours.rename(tmp_path / "moved")
    for put in (other.rename, lambda to: to.symlink_to(tmp_path / "moved")):
        with pytest.raises(InvalidState, match="changed while"), opened(late):
            pass
        put(ours)
        with pytest.raises(InvalidState, match="changed while"), opened(late):
            pass
        ours.unlink() if ours.is_symlink() else ours.rmdir()
