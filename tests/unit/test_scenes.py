"""Every environment is told apart from every other, with a remedy of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ocisbx.container.scenes import TABLE, find_scene
from ocisbx.host import Cgroups
from tests.unit.hosts import make_host

USER = "/user.slice/user-1000.slice"
MANAGER = f"{USER}/user@1000.service"
ALL = ("cpu", "cpuset", "io", "memory", "pids")
FEW = ("memory", "pids")
BUS = "/run/user/1000/bus"
V2 = {
    "hierarchy": "unified", "mount": "/sys/fs/cgroup", "offered": ALL, "systemd": True,
}  # fmt: skip
SCOPE = {**V2, "way": "scope", "controllers": ("cpu", "memory", "pids"), "user_bus": BUS}
HELD = {**V2, "way": "sibling", "controllers": ALL, "parent": f"{MANAGER}/app.slice"}

# Name of the scene, what was seen, words of the remedy ("": there is nothing to do).
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("failed", {**V2, "own": f"{USER}/session-3.scope", "trouble": "no {answer} in 5 s"}, {},
     "restart user@1000.service"),
    ("wsl2", {"hierarchy": "hybrid"}, {"kernel": "5.15.153-microsoft-standard-WSL2"}, ".wslconfig"),
    ("old-outside", {"hierarchy": "hybrid", "container": "docker"}, {}, "the machine that runs"),
    ("old", {"hierarchy": "hybrid"}, {}, "systemd.unified_cgroup_hierarchy=1"),
    ("old", {"hierarchy": "v1"}, {}, "update-grub"),
    ("none", {"hierarchy": "none"}, {}, "sudo mount -t cgroup2"),
    ("unseen", {**V2, "container": "docker"}, {}, "unshare --mount --cgroup"),
    ("read-only", {**V2, "own": "/", "read_only": True, "systemd": False}, {}, "unmask=/sys"),
    ("container", {**V2, "own": "/", "container": "podman", "systemd": False}, {}, "--privileged"),
    ("su", {**V2, "own": "/user.slice/user-1234.slice/session-3.scope"}, {}, "by ssh"),
    ("no-manager", {**V2, "own": "/system.slice/cron.service"}, {}, "enable-linger 1000"),
    ("no-manager", {**V2, "own": f"{USER}/session-3.scope"}, {}, "XDG_RUNTIME_DIR=/run/user/1000"),
    ("no-systemd", {**V2, "own": "/", "systemd": False}, {}, "+cpu +cpuset +io +memory +pids"),
    ("kernel", {**SCOPE, "own": f"{USER}/session-3.scope", "offered": ("cpu", "pids")}, {},
     "cgroup_enable=memory"),
    ("few-controllers", {**SCOPE, "own": f"{USER}/session-3.scope", "controllers": ("pids",)}, {},
     "delegate.conf"),
    ("few-controllers", {**HELD, "own": f"{MANAGER}/app.slice/x.scope", "controllers": ("cpu",)},
     {}, "Delegate=cpu cpuset io memory pids"),
    ("few-for-root", {**HELD, "own": "/user.slice/user-0.slice/session-4.scope",
     "controllers": ()}, {"uid": 0}, "systemd-run --scope"),
    ("few-here", {**V2, "own": "/system.slice/x.service", "way": "below",
     "parent": "/system.slice/x.service", "controllers": ("pids",)}, {}, "Delegate=yes"),
    ("session", {**SCOPE, "own": f"{USER}/session-3.scope"}, {}, ""),
    ("su-lingering", {**SCOPE, "own": "/user.slice/user-1234.slice/session-3.scope"}, {}, ""),
    ("desktop", {**SCOPE, "own": f"{MANAGER}/app.slice/app-gnome-terminal-7.scope"}, {}, ""),
    ("desktop", {**SCOPE, "own": f"{MANAGER}/session.slice/org.gnome.Shell@wayland.service"}, {},
     ""),
    ("undelegated", {**SCOPE, "own": f"{MANAGER}/app.slice/run-r0a.scope"}, {}, ""),
    ("service", {**SCOPE, "own": "/system.slice/x.service"}, {}, ""),
    ("delegated", {**HELD, "own": f"{MANAGER}/app.slice/x.scope"}, {}, ""),
    ("root", {**HELD, "own": "/user.slice/user-0.slice/session-4.scope"}, {"uid": 0}, ""),
    ("handed-over", {**HELD, "own": "/user-1000/shell", "parent": "/user-1000"}, {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cgroups", "host", "remedy"), CASES)
def test_each_environment(
    name: str, cgroups: dict[str, Any], host: dict[str, Any], remedy: str
) -> None:
    scene = find_scene(make_host(cgroups=Cgroups.model_validate(cgroups), **host))
    assert scene.name == name
    assert remedy in scene.remedy
    assert bool(remedy) == bool(scene.remedy)
    # Nothing is left to be filled in, and nothing is asked of root that root need not do as root.
    assert not re.search(r"\{[a-z]", (scene.seen + scene.remedy).replace("{answer}", ""))
    assert ("sudo" in scene.remedy) <= (host.get("uid") != 0)


def test_every_environment_has_its_own_words() -> None:
    assert {name for name, *_ in CASES} == {row.name for row in TABLE}
    assert len({row.seen for row in TABLE}) == len(TABLE)


def test_what_is_needed_decides_what_is_lacking() -> None:
    own = f"{USER}/session-3.scope"
    host = make_host(cgroups=Cgroups.model_validate({**SCOPE, "own": own}))
    assert find_scene(host).name == "session"
    assert find_scene(host, ["cpu"]).name == "session"
    scene = find_scene(host, ["io", "cpuset"])
    assert scene.name == "few-controllers"
    assert "cpuset, io" in scene.seen
