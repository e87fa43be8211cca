"""What crun keeps for the containers to come: shared by those with the same seccomp profile."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.bundle.directory import BundleDirectory
from ocisbx.places import ensure, find_places
from ocisbx.plan import Template
from ocisbx.quirks import find_quirks
from ocisbx.runtime.kept_state import forget_kept_state, kept_state

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ensure(find_places().runtime)
    ensure(find_places().bundles)


def template(profile: dict[str, Any] | None, hostname: str = "a") -> Template:
    document = json.dumps({"hostname": hostname, "linux": {"seccomp": profile}})
    return Template((document,), ())


def test_crun_has_its_filters_and_its_empty_directory() -> None:
    links = kept_state(find_quirks("crun", "1.28"), template({"defaultAction": "SCMP_ACT_KILL"}))
    modes = {name: os.stat(path).st_mode & 0o7777 for name, path in links.items()}
    assert modes == {".cache": 0o700, ".empty-directory": 0o555}


@pytest.mark.parametrize(("name", "version"), [("crun", "1.8.1"), ("runc", "1.5.2")])
def test_others_have_nothing(name: str, version: str) -> None:
    assert kept_state(find_quirks(name, version), template(None)) == {}


def test_only_the_profile_counts() -> None:
    crun = find_quirks("crun", "1.28")
    profile = {"syscalls": [{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}
    other = {"syscalls": [{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}
    kept = kept_state(crun, template(profile))
    assert kept_state(crun, template(profile, hostname="b")) == kept
    assert kept_state(crun, template(other)) != kept


def test_what_a_bundle_links_to_stays_until_there_is_no_bundle() -> None:
    links = kept_state(find_quirks("crun", "1.28"), template(None))
    bundle = BundleDirectory(f"{find_places().bundles}/one")
    bundle.create(0o700)
    bundle.link(links)
    forget_kept_state()
    assert all(os.path.isdir(path) for path in links.values())
    bundle.remove()
    assert not os.path.lexists(bundle.path)
    assert all(os.path.isdir(path) for path in links.values())
    forget_kept_state()
    assert not os.path.lexists(find_places().kept)
