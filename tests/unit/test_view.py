"""What of a described host's /etc is shown."""

from __future__ import annotations

from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.container.view import ETC_PATTERNS, LISTED
from ocisbx.host import Entry
from tests.unit.hosts import ROOT, make_host


def shown(**listings: tuple[Entry, ...]) -> set[str]:
    """What is bound of these directories of /etc (of /etc itself with them as its entries)."""
    etc = tuple(Entry(name=name, kind="directory") for name in listings)
    below = {f"/etc/{name}": entries for name, entries in listings.items()}
    host = make_host(listings={"/": ROOT, "/etc": etc, **below})
    binds = resolve(SandboxConfig(workspace="/srv/work"), host).binds
    return {bind.target for bind in binds if bind.target.startswith("/etc/")}


def test_what_may_hold_passwords_stays_out_beside_what_is_shown() -> None:
    names = ("m2.conf", "settings.xml", "toolchains.xml")
    files = [Entry(name=name, kind="file") for name in names]
    entries = (*files, Entry(name="logging", kind="directory"))
    assert shown(maven=entries) == {"/etc/maven/m2.conf", "/etc/maven/logging"}
    keys = (Entry(name="certs", kind="directory"), Entry(name="private", kind="directory"))
    assert shown(ssl=keys) == {"/etc/ssl/certs"}


def test_every_pattern_is_found() -> None:
    """The directories that the host is asked for are those that the patterns lie in."""
    for pattern, reason in ETC_PATTERNS:
        directory, _, _ = f"/etc/{pattern}".rpartition("/")
        assert directory in LISTED, pattern
        assert reason
