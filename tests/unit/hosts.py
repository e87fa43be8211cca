"""A described host: what the pure stages are fed with, no machine involved."""

from __future__ import annotations

from typing import Any

from ocisbx.host import Cgroups, Entry, Host, IdRange, Link, PathFact, PathKind, RuntimeBinary

CRUN = RuntimeBinary(name="crun", path="/usr/bin/crun", version="1.8.1")
RUNC = RuntimeBinary(name="runc", path="/usr/sbin/runc", version="1.1.5+ds1")
NEW_RUNC = RuntimeBinary(name="runc", path="/opt/runc", version="1.5.2")
NEW_CRUN = RuntimeBinary(name="crun", path="/opt/crun", version="1.28")
RUNSC = RuntimeBinary(
    name="runsc", path="/opt/runsc", version="release-20260907.0", platform="systrap"
)
RANGE = IdRange(start=100000, count=65536)

ROOT = (
    Entry(name="bin", kind="symlink", target="usr/bin"),
    Entry(name="etc", kind="directory"),
    Entry(name="home", kind="directory"),
    Entry(name="lib", kind="symlink", target="usr/lib"),
    Entry(name="root", kind="directory"),
    Entry(name="usr", kind="directory"),
)
ETC = (
    Entry(name="ld.so.cache", kind="file"),
    Entry(name="shadow", kind="file"),
    Entry(name="ssh", kind="directory"),
)


def directory(path: str, *links: Link) -> PathFact:
    return PathFact(kind=PathKind.DIRECTORY, real=path, links=links)


def make_host(workspace: str = "/srv/work", **changes: Any) -> Host:
    """An unprivileged user on a host with hybrid cgroups and both of Debian's runtimes."""
    document = {
        "machine": "x86_64",
        "kernel": "6.1.0-1-amd64",
        "uid": 1000,
        "gid": 1000,
        "home": "/home/me",
        "cwd": workspace,
        "cgroups": Cgroups(hierarchy="hybrid"),
        "runtimes": (CRUN, RUNC),
        "own_directories": ("/run/user/1000/ocisbx", "/home/me/.cache/ocisbx"),
        "paths": {workspace: directory(workspace)},
        "listings": {"/": ROOT, "/etc": ETC},
    }
    return Host(**{**document, **changes})
