"""A workspace for a container that has started already: what it takes, and how it is given.

The same rules are laid over it as over one that was there at the start, by the same code: the
configuration is resolved with it, and what comes out may differ from the container in the mounts at
the workspace's place, and in nothing else.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.backends.compile import guards
from ocisbx.backends.lower import enforced
from ocisbx.container.merge import merge_preset
from ocisbx.container.paths import is_below
from ocisbx.container.resolve import resolve
from ocisbx.errors import ConfigError, InvalidState, Unsupported
from ocisbx.mounts import PER_CALL_PLACE, WorkspaceValue, parse_workspace
from ocisbx.plan import Shown, all_hold, fingerprint, identity
from ocisbx.probe.gather import gather_workspace
from ocisbx.quirks import find_quirks
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ocisbx.backends.compile import Compiled
    from ocisbx.container.model import Bind, ContainerConfig
    from ocisbx.placeholder import Placeholder
    from ocisbx.plan import Guard, Plan
    from ocisbx.result import Enforced

# mount_setattr(2).
KERNEL = (5, 12)
SHOWN = 3


class Layer(NamedTuple):
    """What is mounted over `path`, a place in the workspace: a cover, or itself once more. `words`:
    so says ocisbx-init(7), but for the directory where the covers lie."""

    path: str
    is_cover: bool
    words: bytes


class Late(NamedTuple):
    """One workspace, for the containers of one plan.

    `layers` are in their order. `identity`: the directory's, as `plan.fingerprint` has it.
    """

    source: str
    identity: tuple[int, ...]
    read_only: bool
    layers: tuple[Layer, ...]
    placeholders: tuple[Placeholder, ...]
    guards: tuple[Guard, ...]
    workdir: str
    environment: Mapping[str, str]
    filesystem: Enforced | None

    def holds(self) -> bool:
        """True while every fact that it was compiled from still stands."""
        return all_hold(self.guards)

    def on(self, plan: Plan) -> Plan:
        """The plan of a call that gets it."""
        entries = {name: entry for name, entry in plan.enforcement.items() if name != "filesystem"}
        if self.filesystem is not None:
            entries["filesystem"] = self.filesystem
        return plan._replace(
            workdir=self.workdir,
            environment=dict(self.environment),
            shown=(*plan.shown, Shown(self.source, PER_CALL_PLACE)),
            enforcement=dict(sorted(entries.items())),
        )


def check_able(base: Compiled) -> None:
    """That a container of this plan can be given a workspace after its start.

    Raises:
        Unsupported: it cannot.
    """
    runtime, host = base.container.runtime, base.host
    why = remedy = ""
    if find_quirks(runtime.name, runtime.version).user_kernel:
        why = "gVisor serves the files that were there at the start; nothing can be mounted later"
        remedy = "--runtime crun, runc or youki; or a pool for each workspace"
    elif not host.kernel_at_least(*KERNEL):
        why = f"it takes Linux {KERNEL[0]}.{KERNEL[1]} (mount_setattr(2)), this is {host.kernel}"
        remedy = "a pool for each workspace"
    elif host.uid == 0 and base.container.identity.uid_map[0].host != 0:
        why = "started by root, a container has its workspace by a mount that maps ids"
        remedy = "start it as an ordinary user; or a pool for each workspace"
    if why:
        what = f"{runtime.name} {runtime.version} cannot take a workspace per call here"
        raise Unsupported(what, why=why, remedy=remedy)


def compile_late(base: Compiled, wanted: str) -> Late:
    """The workspace `wanted` (DIR, DIR:ro, DIR:rw) for containers of `base`, as it is now.

    Raises:
        ConfigError: it is missing, no directory, or not for a sandbox to have; or it changes what
            lies outside of it.
        Unsupported: a rule of [filesystem] does not hold in it.
    """
    config = base.config.updated({"workspace": _merged(base, wanted)})
    host = gather_workspace(base.host, merge_preset(config))
    runtime = base.container.runtime
    if runtime.path not in {one.path for one in host.runtimes}:
        raise ConfigError(
            f"the workspace {show(wanted)} does not fit this pool",
            why=f"its runtime {show(runtime.path)} lies in it",
            remedy="name the runtime by its path if you trust it, or give the workspace read-only",
        )
    host = host.model_copy(update={"runtimes": (runtime,)})
    container = resolve(config, host, place=PER_CALL_PLACE)
    own = next(bind for bind in container.binds if bind.target == PER_CALL_PLACE)
    _check_rest(base.container, container, wanted)
    # A cover has a relative source.
    seen = fingerprint(own.source, "identity") if own.source.startswith("/") else None
    if seen is None:
        raise ConfigError(
            f"the workspace {show(wanted)} cannot be given",
            why="it has gone, or [filesystem] deny_read hides all of it",
        )
    entry = container.enforcement.get("filesystem")
    return Late(
        source=own.source,
        identity=seen,
        read_only=own.read_only,
        layers=tuple(_layer(bind, own) for bind in container.binds if _is_inside(bind)),
        placeholders=container.host_side.placeholders,
        guards=guards(host),
        workdir=container.workdir,
        environment=container.environment.fixed,
        filesystem=None if entry is None else enforced(entry),
    )


def _merged(base: Compiled, wanted: str) -> str:
    """What was asked for, with what the pool says of writing."""
    value = parse_workspace(wanted)
    pool = parse_workspace(merge_preset(base.config).workspace)
    assert pool is not None
    if value is None or value.per_call or value.path is None:
        raise ConfigError(
            f"{wanted!r} names no workspace", remedy="an absolute directory, or DIR:ro"
        )
    if not pool.read_only:
        return _written(value)
    if value.read_only is False:
        raise ConfigError(
            f"the workspace {show(wanted)} cannot be written in this pool",
            why="its containers were started for workspaces that are read-only",
            remedy="leave :rw out, or make the pool with workspace = per-call:rw",
        )
    return _written(value._replace(read_only=True))


def _written(value: WorkspaceValue) -> str:
    return f"{value.path}:{'ro' if value.read_only else 'rw'}"


def _is_inside(bind: Bind) -> bool:
    return bind.target != PER_CALL_PLACE and is_below(bind.target, PER_CALL_PLACE)


def _check_rest(there: ContainerConfig, wanted: ContainerConfig, written: str) -> None:
    """Raises ConfigError where the container would have to be another one."""
    one, other = _rest(there), _rest(wanted)
    if one == other:
        return
    mounts = sorted({bind.target for bind in {*one.binds} ^ {*other.binds}})
    changed = [name for name, value in one if value != getattr(other, name) and name != "binds"]
    changed += [f"what is mounted at {show(target)}" for target in mounts]
    more = f" (and {len(changed) - SHOWN} more)" if len(changed) > SHOWN else ""
    raise ConfigError(
        f"the workspace {show(written)} does not fit this pool",
        why=f"the containers that wait would have to differ in {', '.join(changed[:SHOWN])}{more}",
        remedy="leave out the pool's volumes that show it too, or make a pool for it",
    )


def _rest(container: ContainerConfig) -> ContainerConfig:
    """Without what a workspace may change."""
    confinement = container.confinement.model_copy(update={"writable_paths": None})
    fixed = {name: value for name, value in container.environment.fixed.items() if name != "PWD"}
    return container.model_copy(
        update={
            "binds": tuple(
                bind for bind in container.binds if not is_below(bind.target, PER_CALL_PLACE)
            ),
            "workdir": "",
            "environment": container.environment.model_copy(update={"fixed": fixed}),
            "confinement": confinement,
            "host_side": type(container.host_side)(),
            "enforcement": {},
        }
    )


def _layer(bind: Bind, workspace: Bind) -> Layer:
    place = posixpath.relpath(bind.target, PER_CALL_PLACE)
    path = posixpath.join(workspace.source, place)
    is_cover = not bind.source.startswith("/")
    if is_cover:
        what = posixpath.basename(bind.source)
    elif bind.source == path:
        what = "ro" if bind.read_only else "rw"
    else:
        # It would be looked up by its name once more, when somebody may have changed it.
        raise ConfigError(f"{show(bind.source)} cannot be shown in a workspace that comes late")
    return Layer(path, is_cover, os.fsencode(f"{what}\0{place}\0"))


class Given(NamedTuple):
    """A workspace for one container: `directory` is a descriptor of it (O_PATH)."""

    late: Late
    directory: int


@contextlib.contextmanager
def opened(late: Late) -> Iterator[Given]:
    """The directory that was judged, whatever its name leads to from now on.

    Raises:
        InvalidState: something else is there by now.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(late.source, flags)
    except OSError as error:
        raise changed(late, (error.strerror or str(error)).lower()) from None
    try:
        # Where it lies too: the identity was asked for by name, as the rules were.
        if os.readlink(f"/proc/self/fd/{descriptor}") != late.source:
            raise changed(late, "a symlink on its way leads elsewhere")
        if identity(os.fstat(descriptor)) != late.identity:
            raise changed(late, "another directory is there")
        yield Given(late, descriptor)
    finally:
        os.close(descriptor)


def changed(late: Late, why: str) -> InvalidState:
    what = f"the workspace {show(late.source)} changed while it was about to be given"
    return InvalidState(what, why=why, remedy="run it again")
