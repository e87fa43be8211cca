"""A compiled plan: everything about a call that does not depend on the call.

The same options on the same host give the same plan, so it is kept (in the process; on disk for
the command line) and each call only splices its id, command and environment into the text of
config.json. Plain values and JSON: loading one imports neither pydantic nor the spec's models.
"""

from __future__ import annotations

import json
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ocisbx.commands import CommandPolicy
from ocisbx.placeholder import Placeholder, are_blank
from ocisbx.quirks import find_quirks
from ocisbx.result import Enforced, EnforcementState, RuntimeInfo
from ocisbx.steady import stands

try:
    # hashlib loads OpenSSL first: 3 to 10 ms of every start.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ocisbx.steady import Looked

SLOTS = ("args", "cgroup", "env", "root")
# Where systemd puts the container of a bundle that is run by hand, with `--systemd-cgroup` (runc,
# docs/systemd.md: SLICE:PREFIX:NAME).
BY_HAND = "user.slice:ocisbx:"
# A place at which no ordinary user can make a cgroup.
NOWHERE = "/ocisbx"


def digest(parts: Iterable[bytes]) -> str:
    """A name for this content: 128 bits of BLAKE2b, in hexadecimal."""
    running = blake2b(digest_size=16)
    for part in parts:
        running.update(part + b"\0")
    return running.hexdigest()


def hash_of(looked: Iterable[Looked]) -> str:
    """A name for the state in which a file or directory was found (steady.survey)."""
    return digest(json.dumps(one).encode() for one in looked)


Seen = Literal["identity", "content", "entries", "link", "writable", "trouble", "processors"]
Sight = Seen | Literal["blanks", "steady"]


class Guard(NamedTuple):
    """A fact on which the plan rests: `path` is still what it was (None: it is not there).

    `sight`: what is looked at, see `fingerprint`; blanks: of the names `seen` in the directory
    `path` each is missing, or looks like a placeholder; steady: what `seen` (each a steady.Looked)
    tells of it stands.
    """

    path: str
    sight: Sight
    seen: tuple[Any, ...] | None


def all_hold(guards: Sequence[Guard]) -> bool:
    """Whether every one of these facts still stands; dozens are looked at before each call."""
    return all(map(_holds, guards))


def _holds(guard: Guard) -> bool:
    path, sight, seen = guard
    if sight == "blanks":
        return are_blank(path, seen or ())
    if sight == "steady":
        return stands(seen or ())
    return fingerprint(path, sight) == seen


def fingerprint(path: str, sight: Seen) -> tuple[Any, ...] | None:
    """What `path` leads to.

    identity: (device, inode, type); content: size, mtime and ctime in ns besides; entries: a hash
    of a directory's names and their types, which a placeholder that came and went does not change;
    link: where a symlink leads; writable: whether we may write there; trouble: why it cannot be
    looked at (errno), where it is neither there nor missing; processors: which ones this thread may
    use, which a cpuset and a processor that goes offline change, whatever the path.
    """
    try:
        return _LOOKS[sight](path)
    except OSError:
        return None


def _content(path: str) -> tuple[Any, ...]:
    info = os.stat(path)
    return (*identity(info), info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _entries(path: str) -> tuple[Any, ...]:
    with os.scandir(path) as entries:
        return (digest(sorted(map(_entry, entries))),)


def _trouble(path: str) -> tuple[Any, ...] | None:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return (error.errno,)
    return None


_LOOKS: Mapping[Seen, Callable[[str], tuple[Any, ...] | None]] = {
    "identity": lambda path: identity(os.stat(path)),
    "content": _content,
    "entries": _entries,
    "link": lambda path: (os.readlink(path),),
    "writable": lambda path: (os.access(path, os.W_OK),),
    "trouble": _trouble,
    "processors": lambda _: tuple(sorted(os.sched_getaffinity(0))),
}


def identity(info: os.stat_result) -> tuple[int, int, int]:
    """Device, inode, type: what a file is, whatever its name."""
    return info.st_dev, info.st_ino, info.st_mode & 0o170000


def _entry(entry: os.DirEntry[str]) -> bytes:
    kind = "l" if entry.is_symlink() else "d" if entry.is_dir() else "f"
    return f"{kind}{entry.name}".encode(errors="surrogateescape")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_encode = json.JSONEncoder(ensure_ascii=False).encode


class Template(NamedTuple):
    """config.json cut at its slots: parts[0], slots[0], parts[1], slots[1], ... parts[-1]."""

    parts: tuple[str, ...]
    slots: tuple[str, ...]

    def fill(
        self, *, root: str, argv: Sequence[str], environment: list[str], cgroup: str = ""
    ) -> str:
        """The finished text. `environment` must not be empty; without `argv` the init waits for a
        command. `root` is root.path, `cgroup` linux.cgroupsPath, where the plan has one."""
        values = {
            "root": _encode(root),
            "args": _encode(list(argv))[1:-1],
            "env": _encode(environment)[1:-1],
            "cgroup": _encode(cgroup),
        }
        pieces = [self.parts[0]]
        for slot, part in zip(self.slots, self.parts[1:], strict=True):
            if not values[slot]:
                # Of process.args the init's own remain.
                pieces[-1] = pieces[-1].rstrip().removesuffix(",")
            pieces += [values[slot], part]
        return "".join(pieces)


class RootNode(NamedTuple):
    """One entry of the root that is made for each container; `path` starts with a slash.

    `content`: a file's text, a symlink's target, or what on the host a copy is made of; `looked`: a
    hash of what that was. A copy's mode is that of its source.
    """

    kind: Literal["directory", "symlink", "file", "copy"]
    path: str
    content: str
    mode: int
    looked: str = ""


class CgroupPlan(NamedTuple):
    """What the container's cgroup has to hold: `resources` as in config.json (config-linux.md,
    "Control groups"), and the same as files of cgroup v2 with their lines."""

    files: dict[str, tuple[str, ...]]
    resources: dict[str, Any]


class Shown(NamedTuple):
    """A host path that the container sees at `target`."""

    source: str
    target: str


class Plan(NamedTuple):
    """What `launch` needs. Times in seconds, sizes in bytes."""

    template: Template
    nodes: tuple[RootNode, ...]
    # root.path where it is not ours to make; a root of ours may be shared when it is read-only.
    root_directory: str | None
    share_root: bool
    runtime: RuntimeInfo
    # Options of the runtime before its verb.
    runtime_args: tuple[str, ...]
    cell: Literal["none", "mount", "user"]
    sealed: bool
    # None: the container gets no cgroup of its own.
    cgroup: CgroupPlan | None
    environment: dict[str, str]
    inherit: tuple[str, ...]
    workdir: str
    shown: tuple[Shown, ...]
    # Who the payload is outside, when that is not the caller: pipes are given to it.
    owner: tuple[int, int] | None
    timeout_s: float | None
    grace_s: float
    max_output_bytes: int
    on_output_limit: Literal["truncate", "kill"]
    combine: bool
    terminal: bool
    commands: CommandPolicy
    enforcement: dict[str, Enforced]
    warnings: tuple[str, ...]
    guards: tuple[Guard, ...]
    # What has to be on the host before the runtime mounts over it, and is taken away afterwards.
    placeholders: tuple[Placeholder, ...]
    # The sources in the bundle that mounts of the path policy use.
    covers: tuple[str, ...]
    # The container is looked at before the payload starts: of the host, nothing but these may be
    # mounted: (source, target, writable).
    verified: tuple[tuple[str, str, bool], ...]
    sandbox_toml: str
    # At most so many sandboxes of this user at once, and how long to wait for a turn: slots.py.
    max_sandboxes: int | None
    wait_s: float | None

    def holds(self) -> bool:
        """True while every fact that it was compiled from still stands."""
        return all_hold(self.guards)

    def payload_environment(
        self,
        caller: Mapping[str, str],
        extra: Mapping[str, str] = MappingProxyType({}),
        term: str = "xterm",
    ) -> list[str]:
        """`NAME=value` lines; what the caller does not have is left out, `extra` wins. `term`: what
        TERM says of a terminal, where nothing else does.

        So is what is not UTF-8 (Python holds it as lone surrogates): JSON cannot say it.
        """
        merged = {"TERM": term} if self.terminal else {}
        merged |= self.environment
        for name in self.inherit:
            try:
                value = caller[name]
            except KeyError:
                continue
            if _is_text(value):
                merged[name] = value
        merged |= extra
        return [f"{name}={value}" for name, value in merged.items()]

    def standing_config(
        self, container_id: str, *, root: str, argv: Sequence[str], environment: list[str]
    ) -> dict[str, Any]:
        """config.json as it stands in a bundle that is kept or shown: with the limits, which in a
        run are set on the cgroup above the container's, and a place that systemd can make."""
        document: dict[str, Any] = json.loads(
            self.template.fill(
                root=root, argv=argv, environment=environment, cgroup=f"{BY_HAND}{container_id}"
            )
        )
        if self.cgroup is not None and self.cgroup.resources:
            document["linux"]["resources"] = self.cgroup.resources
        elif find_quirks(self.runtime.name, self.runtime.version).always_placed:
            # One that it cannot make, and does without.
            document["linux"]["cgroupsPath"] = NOWHERE
        elif self.cgroup is not None:
            del document["linux"]["cgroupsPath"]
        return document

    def for_commands(self) -> Plan:
        """What a further command in one of its containers needs of it: a few kilobytes."""
        return self._replace(
            template=Template(("",), ()),
            nodes=(),
            shown=(),
            guards=(),
            placeholders=(),
            covers=(),
            verified=(),
            warnings=(),
            terminal=False,
        )

    def policy(self) -> dict[str, Any]:
        """What config.json cannot say of what holds: for the owner's record, and so for others."""
        return {
            "enforcement": {name: entry._asdict() for name, entry in self.enforcement.items()},
            "timeout_s": self.timeout_s,
            "grace_s": self.grace_s,
            "max_output_bytes": self.max_output_bytes,
        }

    def to_json(self) -> str:
        document = self._asdict()
        document["runtime"] = self.runtime._asdict()
        document["cgroup"] = None if self.cgroup is None else self.cgroup._asdict()
        document["enforcement"] = {name: one._asdict() for name, one in self.enforcement.items()}
        return json.dumps(document, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan that to_json() wrote.

        Raises:
            ValueError, KeyError, TypeError: it is not one.
        """
        raw: dict[str, Any] = json.loads(text)
        # A NamedTuple is an array in JSON.
        raw["template"] = Template(*map(tuple, raw["template"]))
        raw["nodes"] = tuple(RootNode(*node) for node in raw["nodes"])
        raw["shown"] = tuple(Shown(*shown) for shown in raw["shown"])
        raw["runtime"] = RuntimeInfo(**raw["runtime"])
        if (held := raw["cgroup"]) is not None:
            files = {name: tuple(lines) for name, lines in held["files"].items()}
            raw["cgroup"] = CgroupPlan(files, held["resources"])
        raw["guards"] = tuple(
            Guard(path, sight, None if seen is None else tuple(map(_frozen, seen)))
            for path, sight, seen in raw["guards"]
        )
        raw["placeholders"] = tuple(Placeholder(*one) for one in raw["placeholders"])
        raw["covers"] = tuple(raw["covers"])
        raw["verified"] = tuple(map(tuple, raw["verified"]))
        raw["enforcement"] = {
            name: Enforced(**(entry | {"state": EnforcementState(entry["state"])}))
            for name, entry in raw["enforcement"].items()
        }
        raw["commands"] = CommandPolicy(*(tuple(map(tuple, rows)) for rows in raw["commands"]))
        raw["owner"] = None if raw["owner"] is None else tuple(raw["owner"])
        raw["runtime_args"] = tuple(raw["runtime_args"])
        raw["inherit"] = tuple(raw["inherit"])
        raw["warnings"] = tuple(raw["warnings"])
        return cls(**raw)
