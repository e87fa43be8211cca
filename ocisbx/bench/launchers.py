"""What is measured: launchers as rows of a table, and what one of them is asked to do.

A row says what it needs, in which configuration it runs (printed beside its numbers), and how it
is opened: `open` yields what makes one call, `hold` starts containers that stay.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ocisbx.bench.workloads import WORKLOADS, Workload, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

REFERENCE = "posix_spawn"

# What a launcher is told beyond its best configuration: the fields of SandboxConfig that ask the
# same of ocisbx.
Variant = Literal["default", "no-seccomp", "limits"]
MEMORY_BYTES = 512 << 20
PIDS = 256
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "no-seccomp": {"isolation": {"seccomp": "none"}},
    "limits": {"limits": {"memory_bytes": MEMORY_BYTES, "pids": PIDS}},
}


class Target(NamedTuple):
    """The runtime of a row that needs one."""

    name: str
    path: str
    version: str
    platform: str | None = None

    @property
    def title(self) -> str:
        # gVisor's is a day and a commit.
        version = self.version.partition("-")[0]
        return f"{self.name} {version}" + (f" ({self.platform})" if self.platform else "")


class Job(NamedTuple):
    """What one worker measures; `scratch` is a directory of its own, that goes with the run.

    `lanes`: so many calls at once at most. `mark` (digits): containers that stay are wanted, one a
    lane, with this among their arguments.
    """

    row: str
    program: str
    target: Target | None
    workload: str
    variant: str
    workspace: str
    scratch: str
    lanes: int = 1
    mark: str = ""

    @property
    def work(self) -> Workload:
        return WORKLOADS[self.workload]

    @property
    def argv(self) -> list[str]:
        found = find(self.work)
        assert found is not None, self.workload
        return found

    @property
    def fields(self) -> dict[str, Any]:
        """The configuration of ocisbx that this job asks for."""
        assert self.target is not None
        runtime: dict[str, Any] = {"names": [self.target.path]}
        if self.target.platform is not None:
            runtime["platform"] = self.target.platform
        return {"runtime": runtime, "workspace": self.workspace, **VARIANTS[self.variant]}

    def to_json(self) -> str:
        return json.dumps(self._asdict() | {"target": self.target and self.target._asdict()})

    @classmethod
    def from_json(cls, text: str) -> Job:
        raw = json.loads(text)
        target = raw.pop("target")
        return cls(**raw, target=target and Target(**target))


class Answer(NamedTuple):
    """What one call printed, and its own part of the time where it knows that."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    own_s: float | None = None


class Opened(NamedTuple):
    """A launcher that is ready: `call` takes the number of the lane, and is timed; `settle`
    afterwards is not (a pool fills up again). `ahead`: how many calls it has prepared, and so in a
    batch answers faster than it could go on."""

    call: Callable[[int], Answer]
    settle: Callable[[], None] = lambda: None
    ahead: int = 0


class Row(NamedTuple):
    """One kind of launcher. `program`: what has to be on the caller's PATH; `runtime`: there is
    one launcher for each runtime, `host_kernel`: that has no kernel of its own. `parts`,
    `workloads`: what it can be measured with, empty: all.
    """

    name: str
    words: str
    open: Callable[[Job], AbstractContextManager[Opened]]
    # Starts containers that stay; yields when all are up.
    hold: Callable[[Job], AbstractContextManager[None]] | None = None
    # What has to be there while a second worker, started behind these words, measures.
    around: Callable[[Job], AbstractContextManager[list[str]]] | None = None
    program: str = ""
    version_args: tuple[str, ...] = ("--version",)
    runtime: bool = False
    host_kernel: bool = False
    variants: frozenset[str] = frozenset({"default"})
    workloads: frozenset[str] = frozenset()

    def title(self, target: Target | None) -> str:
        """What a launcher of this row is called."""
        if target is None:
            return self.name
        return target.title if self.name == "bare" else f"ocisbx {self.name}, {target.title}"

    def takes(self, workload: str, variant: str) -> bool:
        return variant in self.variants and (not self.workloads or workload in self.workloads)


class Launcher(NamedTuple):
    """A row that is present here."""

    row: str
    title: str
    words: str
    program: str
    version: str
    target: Target | None = None
    # The launcher whose numbers this one's are compared with besides the reference.
    bare: str = ""


class Absent(NamedTuple):
    """A row that is not, and why."""

    title: str
    why: str
