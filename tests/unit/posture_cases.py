"""Cases of posture tests: the default bundle, edited, and a container as a runtime makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocisbx.posture.facts import Declared, Facts, Subject
from ocisbx.posture.spec import spec_facts
from ocisbx.probe.container import Evidence, IdRow, Mount, Status
from ocisbx.result import Enforced, EnforcementState

if TYPE_CHECKING:
    from ocisbx.posture.judge import Posture

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"
OWN = ("/cache", "/bundle")
CALLER = 1000


def document(name: str = "default") -> dict[str, Any]:
    text = (BUNDLES / name / "config.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def facts(config: dict[str, Any], *, cell: bool = False, caller: int = CALLER) -> Facts:
    return spec_facts(config, caller=caller, cell_maps_root=cell, own=OWN, base="/bundle")


def entry(state: str, actual: object, how: str = "by means") -> Enforced:
    return Enforced(actual, actual, EnforcementState(state), how)


def subject(config: dict[str, Any], live: Facts | None = None, **declared: Any) -> Subject:
    said = {"grace_s": 2.0, "max_output_bytes": 64 << 20} | declared
    names = tuple(one.partition("=")[0] for one in config["process"]["env"])
    profile = config["linux"].get("seccomp")
    return Subject(Declared(**said), facts(config), live, profile, names, config["process"]["cwd"])


def row(posture: Posture, name: str) -> Any:
    return next(one for one in posture.rows if one.name == name)


def edited(*path: str | int, value: object) -> dict[str, Any]:
    config = document()
    place: Any = config
    for name in path[:-1]:
        place = place[name]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return config


def without_namespace(name: str) -> dict[str, Any]:
    rows = [one for one in document()["linux"]["namespaces"] if one["type"] != name]
    return edited("linux", "namespaces", value=rows)


def mounted(**mount: Any) -> dict[str, Any]:
    return edited("mounts", value=[*document()["mounts"], mount])


HOST = (
    Mount(1, "254:0", "/", "/", frozenset({"rw"}), (), "ext4", ("rw",)),
    Mount(2, "0:5", "/", "/dev", frozenset({"rw"}), (), "devtmpfs", ("rw",)),
    Mount(3, "8:1", "/", "/data", frozenset({"rw"}), (), "ext4", ("rw",)),
)


def mount(point: str, flags: str, **other: Any) -> Mount:
    told: dict[str, Any] = {
        "id": 9,
        "device": "0:90",
        "root": "/",
        "type": "tmpfs",
        "super_options": ("size=1m",),
    }
    told |= {"propagation": (), "point": point, "options": frozenset(flags.split(","))}
    return Mount(**(told | other))


def container_mounts() -> dict[str, Mount]:
    """As a runtime makes them of bundles/default."""
    made = [
        mount("/", "ro", device="254:0", root="/cache/views/x", type="ext4"),
        mount("/proc", "rw,nosuid,nodev,noexec", device="0:40", type="proc"),
        mount("/dev", "rw,nosuid,noexec", device="0:41"),
        mount("/dev/pts", "rw,nosuid,noexec", device="0:42", type="devpts"),
        mount("/dev/null", "rw", device="0:5", root="/null", type="devtmpfs"),
        mount("/proc/keys", "rw", device="0:5", root="/null", type="devtmpfs"),
        mount("/proc/acpi", "ro", device="0:46"),
        mount("/proc/sys", "ro", device="0:40", root="/sys", type="proc"),
    ]
    for asked in document()["mounts"]:
        target, options = asked["destination"], asked["options"]
        if asked["type"] == "bind":
            flags = "ro,nosuid,nodev" if "ro" in options else "rw,nosuid,nodev"
            made.append(mount(target, flags, device="254:0", root=asked["source"], type="ext4"))
        elif asked["type"] == "tmpfs" and target != "/dev":
            made.append(mount(target, "rw,nosuid,nodev", device=f"0:{50 + len(made)}"))
    return {one.point: one for one in made}


OWN_NAMESPACES = dict.fromkeys(("user", "mount", "pid", "network", "ipc", "uts", "cgroup"), True)
SOUND = "rw,nosuid,nodev"
HELD = Status(
    (CALLER,) * 4, (CALLER,) * 4, (CALLER,), 0, no_new_privileges=True, seccomp=2, filters=1
)


def seen(**changes: Any) -> Evidence:
    told: dict[str, Any] = {
        "init": 10,
        "payload": 11,
        "status": HELD,
        "uid_map": (IdRow(0, CALLER, 1),),
        "gid_map": (IdRow(0, CALLER, 1),),
        "namespaces": OWN_NAMESPACES,
        "mounts": tuple(container_mounts().values()),
        "host_mounts": HOST,
        "existing": frozenset({"/proc/keys", "/proc/acpi", "/proc/sys"}),
        "rlimits": {"RLIMIT_CORE": (0, 0), "RLIMIT_NOFILE": (65536, 65536)},
        "interfaces": ("lo",),
        "cgroup_limits": None,
        "security_label": None,
        "oom_score_adj": 0,
        "foreign_files": (),
    }
    return Evidence(**(told | changes))


def of_host(point: str, flags: str, root: str | None = None) -> Mount:
    return mount(point, flags, device="254:0", root=root or point, type="ext4")
