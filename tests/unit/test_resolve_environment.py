"""The environment that every container starts with, on described hosts."""

from __future__ import annotations

from typing import Any

import pytest

from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from tests.unit.hosts import NEW_CRUN, RANGE, make_host

KEEPS = {"TAR_OPTIONS": "--no-same-owner"}
ROOT_OF_A_RANGE = {
    "uid": 0,
    "gid": 0,
    "home": "/root",
    "idmap_ready": True,
    "subordinate_uids": (RANGE,),
    "subordinate_gids": (RANGE,),
    "own_uids": ({"start": 0, "count": 2**32 - 1},),
    "own_gids": ({"start": 0, "count": 2**32 - 1},),
    "runtimes": (NEW_CRUN,),
}


@pytest.mark.parametrize(
    ("host", "fields", "expected"),
    [
        pytest.param({}, {}, KEEPS, id="one id"),
        pytest.param({}, {"isolation": {"level": "baseline"}}, KEEPS, id="one id, CAP_CHOWN"),
        pytest.param({}, {"user": "1000"}, {}, id="not uid 0"),
        pytest.param(ROOT_OF_A_RANGE, {}, KEEPS, id="many ids"),
        pytest.param(
            ROOT_OF_A_RANGE, {"isolation": {"level": "baseline"}}, {}, id="many ids, CAP_CHOWN"
        ),
        pytest.param({}, {"env": {"unset": ["TAR_OPTIONS"]}}, {}, id="unset"),
        pytest.param(
            {}, {"env": {"set": {"TAR_OPTIONS": "-v"}}}, {"TAR_OPTIONS": "-v"}, id="the caller's"
        ),
    ],
)
def test_tar_keeps_to_the_one_owner_that_there_is(
    host: dict[str, Any], fields: dict[str, Any], expected: dict[str, str]
) -> None:
    config = SandboxConfig.build({"workspace": "/srv/work", **fields})
    fixed = resolve(config, make_host(**host)).environment.fixed
    assert {name: value for name, value in fixed.items() if name == "TAR_OPTIONS"} == expected
