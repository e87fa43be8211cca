"""SandboxConfig: what a caller asks for, before any default of a preset or of the host.

Everything that may stay open is None (or an empty tuple or table), so that `resolve()` can tell
what was asked for from what a preset or a default decides. Values are normalised here (sizes to
bytes, names to the spec's spelling); nothing is looked up on the host. Only ConfigError comes out,
with one line for each problem. ocisbx-config(5) is the manual.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from ocisbx import documents, fields
from ocisbx.config_errors import config_error
from ocisbx.errors import ConfigError
from ocisbx.presets import DEFAULT_PRESET
from ocisbx.quantities import UNLIMITED


class _Table(BaseModel):
    """A frozen model that refuses unknown fields, and raises ConfigError when built directly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **values: Any) -> None:  # noqa: ANN401 -- parsed by the fields' types
        documents.check_document(values)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise config_error(error, type(self)) from None

    # Nested in another model, pydantic validates without __init__ and collects all problems.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Volume(_Table):
    """A directory or file of the host; as text: `SRC[:DST][:ro]`."""

    source: fields.AbsolutePath
    """Absolute path on the host."""
    target: fields.AbsolutePath
    """Absolute path inside; the source where it is left out."""
    read_only: StrictBool = False
    """Recursively read-only."""


class Env(_Table):
    """The payload's environment: a short safe list, then these, in this order."""

    inherit: tuple[fields.EnvName, ...] = ()
    """Names whose values are taken from the caller, where the caller has them."""
    set: fields.Variables = Field(default_factory=documents.FrozenDict)
    """Names and values."""
    unset: tuple[fields.EnvName, ...] = ()
    """Names that are taken away again."""


class IoLimit(_Table):
    """Limits of one block device: rates, each a second, and a share; at least one of them."""

    read_bps: fields.Rate | None = None
    """Bytes a second."""
    write_bps: fields.Rate | None = None
    """Bytes a second."""
    read_iops: fields.Operations | None = None
    """Operations a second."""
    write_iops: fields.Operations | None = None
    """Operations a second."""
    weight: fields.Weight | None = None
    """Share among siblings when the device is busy, 1 to 10000; the kernel's default is 100."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if all(value is None for value in dict(self).values()):
            raise fields.problem(f"it limits nothing: give one of {', '.join(dict(self))}")
        return self


class Limits(_Table):
    """Limits of the container's cgroup, and rlimits; -1 or "unlimited" lifts a preset's limit."""

    memory_bytes: fields.Memory | None = None
    """Memory, in bytes or as 512M; at least 1 MiB. Beyond it the payload is killed."""
    oom_group: StrictBool | None = None
    """Out of memory, all of the container is killed, and not only what holds the most."""
    memory_high_bytes: fields.Memory | None = None
    """Memory beyond which the payload is slowed down and its memory reclaimed; it is not killed."""
    swap_bytes: fields.Swap | None = None
    """Memory and swap together, as docker's --memory-swap; left out, or equal to memory_bytes: no
    swap."""
    cpus: fields.Cpus | None = None
    """Processors' worth of time, from 0.01 on."""
    cpu_weight: fields.Weight | None = None
    """Share among siblings when processors are short, 1 to 10000; the kernel's default is 100."""
    cpuset: fields.Cpuset | None = None
    """The processors that may be used, by number: 0-3,6."""
    pids: fields.Pids | None = None
    """Processes and threads, at least 1."""
    io: Annotated[Mapping[fields.IoKey, IoLimit], fields.Frozen] = Field(
        default_factory=documents.FrozenDict
    )
    """Limits of a block device, named as MAJOR:MINOR or by a path on it."""
    rlimits: fields.Rlimits = Field(default_factory=documents.FrozenDict)
    """Limits of each process (getrlimit(2)): soft, or [soft, hard]."""

    @model_validator(mode="after")
    def _swap_holds_memory(self) -> Self:
        memory, swap = self.memory_bytes, self.swap_bytes
        if swap is None or swap == UNLIMITED:
            return self
        # Without it a preset's memory limit could lie above what the caller knows of.
        if memory is None:
            message = "swap_bytes counts memory and swap together: give memory_bytes too"
            raise fields.problem(message)
        if memory == UNLIMITED or swap < memory:
            message = "swap_bytes counts memory and swap together: it is below memory_bytes"
            raise fields.problem(message)
        return self


class Capture(_Table):
    """What is kept of the payload's output."""

    max_bytes: fields.Size | None = None
    """Bytes kept of each stream; what is beyond is counted, not kept."""
    on_limit: Literal["truncate", "kill"] | None = None
    """What happens at the limit: go on without keeping, or end the payload."""
    combine: StrictBool | None = None
    """Both streams into stdout, in the order of writing."""


class Isolation(_Table):
    """A level, and fields that override what it decides."""

    level: Literal["privileged", "baseline", "restricted"] | None = None
    """privileged, baseline or restricted: ocisbx-presets(7)."""
    capabilities: fields.Capabilities | None = None
    """Names, exactly these; or each with + or -: changes of the level's."""
    seccomp: fields.Seccomp | None = None
    """default, none, or the absolute path of a profile in the runtime-spec's form."""
    no_new_privileges: StrictBool | None = None
    """execve(2) gives no more rights (PR_SET_NO_NEW_PRIVS)."""
    masked_paths: tuple[fields.AbsolutePath, ...] | None = None
    """Paths inside that read as empty."""
    readonly_paths: tuple[fields.AbsolutePath, ...] | None = None
    """Paths inside that cannot be written."""
    read_only_root: StrictBool | None = None
    """The root file system cannot be written; workspace, volumes and tmpfs can."""


class Filesystem(_Table):
    """Paths and globs: absolute, or below the workspace."""

    allow_write: tuple[fields.Pattern, ...] = ()
    """Writable besides the workspace."""
    deny_read: tuple[fields.Pattern, ...] = ()
    """Neither readable nor writable, also within the workspace."""
    deny_write: tuple[fields.Pattern, ...] = ()
    """Readable only, also within the workspace."""


class Commands(_Table):
    """Which commands may be started: a policy, and no boundary."""

    allow: tuple[fields.CommandPattern, ...] = ()
    """Only these, where there are any."""
    deny: tuple[fields.CommandPattern, ...] = ()
    """None of these; wins over allow."""


class Concurrency(_Table):
    """How many sandboxes of this user may run at once, in all its processes together."""

    max: fields.Sandboxes | None = None
    """At most so many; counted are those that run under a cap. Not started when they are there."""
    wait_s: fields.Grace | None = None
    """Seconds to wait for a turn: 0 refuses at once, left out waits without end."""

    @property
    def cap(self) -> int | None:
        """None: no cap."""
        return None if self.max == UNLIMITED else self.max


class Runtime(_Table):
    """Which OCI runtime."""

    names: tuple[fields.RuntimeName, ...] = ()
    """A fallback list, in order: auto, strongest, crun, runc, youki, runsc or an absolute path."""
    platform: Literal["auto", "systrap", "ptrace", "kvm"] | None = None
    """How runsc intercepts system calls; runsc only."""


TABLES: tuple[str, ...] = (
    *("env", "limits", "capture", "isolation", "filesystem", "commands", "concurrency", "runtime"),
)


class SandboxConfig(_Table):
    """What a sandbox is asked to be; keywords, tables or dotted names (`limits.pids`)."""

    preset: fields.PresetName = DEFAULT_PRESET
    """What decides where this configuration says nothing: ocisbx-presets(7)."""
    backend: (
        Literal["auto", "oci", "seatbelt", "container", "docker", "podman", "colima"] | None
    ) = None
    """What carries the sandbox; auto is oci on Linux."""
    image: fields.Reference | None = None
    """An image's reference, for the backends that take one."""
    workspace: fields.Workspace | None = None
    """DIR, DIR:ro, :ro (the current directory) or none."""
    volumes: tuple[Annotated[Volume, fields.as_volume], ...] = ()
    """Directories and files of the host."""
    tmpfs: fields.Tmpfs = Field(default_factory=documents.FrozenDict)
    """Fresh file systems in memory: where, and how many bytes."""
    rootfs: fields.Rootfs | None = None
    """host, or the absolute path of an unpacked root."""
    workdir: fields.AbsolutePath | None = None
    """Where the payload starts; the workspace, where there is one."""
    timeout_s: fields.Seconds | None = None
    """Seconds of wall clock until the payload is ended."""
    grace_s: fields.Grace | None = None
    """Seconds between SIGTERM and SIGKILL."""
    user: fields.UserIds | None = None
    """UID or UID:GID inside."""
    hostname: fields.HostName | None = None
    """The host's name inside."""
    network: Literal["none", "host"] | None = None
    """none: a loopback of its own; host: all of the host's network."""
    terminal: StrictBool | None = None
    """A terminal instead of pipes."""
    allow_degraded: tuple[fields.EnforcementName, ...] = ()
    """Restrictions without which the run may go on where the host cannot enforce them, or all."""
    annotations: fields.Annotations = Field(default_factory=documents.FrozenDict)
    """Names and values for config.json; only names that no runtime reads."""
    env: Env = Env()
    limits: Limits = Limits()
    capture: Capture = Capture()
    isolation: Isolation = Isolation()
    filesystem: Filesystem = Filesystem()
    commands: Commands = Commands()
    concurrency: Concurrency = Concurrency()
    runtime: Runtime = Runtime()

    def __init__(self, /, **values: Any) -> None:  # noqa: ANN401 -- parsed by the fields' types
        super().__init__(**documents.expand_dotted(values, TABLES))

    @classmethod
    def build(cls, values: Mapping[str, Any], /) -> Self:
        """From a table, such as a parsed document. Raises ConfigError."""
        documents.check_document(values)
        return cls(**values)

    @classmethod
    def from_toml(cls, source: str | PathLike[str]) -> Self:
        """From TOML text, or from the file at a Path. Raises ConfigError that names the file."""
        return cls._from(source, documents.parse_toml)

    @classmethod
    def from_json(cls, source: str | PathLike[str]) -> Self:
        """From JSON text, or from the file at a Path. Raises ConfigError that names the file."""
        return cls._from(source, documents.parse_json)

    @classmethod
    def _from(cls, source: str | PathLike[str], parse: documents.Parser) -> Self:
        if isinstance(source, str):
            return cls.build(parse(source))
        text = documents.read_file(Path(source))
        try:
            return cls.build(parse(text))
        except ConfigError as error:
            what = f"{documents.show_path(source)}: {error.what}"
            raise ConfigError(what, why=error.why, remedy=error.remedy) from None

    def said(self) -> dict[str, Any]:
        """What differs from an empty configuration, and the preset, in JSON's types."""
        return {"preset": self.preset, **self.model_dump(mode="json", exclude_defaults=True)}

    def to_toml(self) -> str:
        """TOML that `from_toml` reads back to an equal configuration."""
        return tomli_w.dumps(self.said())

    def to_json(self) -> str:
        """JSON that `from_json` reads back to an equal configuration."""
        return documents.to_json(self.said())

    def updated(self, values: Mapping[str, Any], /) -> Self:
        """A new configuration: tables merge key by key, all else (lists too) is replaced."""
        over = documents.expand_dotted(values, TABLES)
        return self.build(documents.merge(self.said(), over))
