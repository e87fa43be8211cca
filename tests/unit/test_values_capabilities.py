"""Names of capabilities, and docker's way to add and drop them."""

import pytest

from ocisbx import capabilities
from ocisbx.errors import ConfigError


@pytest.mark.parametrize("name", ["net_raw", "NET_RAW", "CAP_NET_RAW", "cap_net_raw"])
def test_capability(name: str) -> None:
    assert capabilities.parse_capability(name) == "CAP_NET_RAW"


def test_capability_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'CAP_NET_RAW'"):
        capabilities.parse_capability("NET_RAWW")


def test_capability_names_are_the_kernels() -> None:
    # linux/capability.h: CAP_LAST_CAP is CAP_CHECKPOINT_RESTORE, 40.
    assert len(set(capabilities.CAPABILITIES)) == 41
    assert capabilities.CAPABILITIES[40] == "CAP_CHECKPOINT_RESTORE"
    assert capabilities.CAPABILITIES[21] == "CAP_SYS_ADMIN"


BASE = ("CAP_CHOWN", "CAP_KILL")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ()),
        (["KILL", "CHOWN", "cap_kill"], ("CAP_CHOWN", "CAP_KILL")),
        (["ALL"], capabilities.CAPABILITIES),
        (["+SYSLOG"], ("CAP_CHOWN", "CAP_KILL", "CAP_SYSLOG")),
        (["-KILL"], ("CAP_CHOWN",)),
        (["+KILL", "-KILL"], BASE),
        (["-ALL"], ()),
        (["+SYSLOG", "-ALL"], ("CAP_SYSLOG",)),
        (["+ALL", "-CHOWN"], capabilities.CAPABILITIES[1:]),
    ],
)
def test_capabilities_as_docker(entries: list[str], expected: tuple[str, ...]) -> None:
    parsed = capabilities.parse_capabilities(entries)
    assert capabilities.apply_capabilities(BASE, parsed) == expected


@pytest.mark.parametrize("entries", [["CHOWN", "+KILL"], ["+"], [""], ["+-KILL"], [3]])
def test_capabilities_refused(entries: list[object]) -> None:
    with pytest.raises(ConfigError):
        capabilities.parse_capabilities(entries)
