"""From a container, or a bundle, to the subject of a posture: evidence from /proc while it runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.bundle.kept import read_config
from ocisbx.bundle.owner import Owner, read_owner
from ocisbx.bundle.view import INIT_NODE
from ocisbx.errors import BundleError, OcisbxError
from ocisbx.oci import violations
from ocisbx.places import find_places
from ocisbx.posture.facts import Declared, Subject
from ocisbx.posture.judge import Posture, judge
from ocisbx.posture.live import live_facts
from ocisbx.posture.prompt import prompt
from ocisbx.posture.spec import spec_facts
from ocisbx.presets import MASKED_PATHS_RESTRICTED, READONLY_PATHS
from ocisbx.probe.container import is_init, read_container
from ocisbx.probe.processes import pid_namespace
from ocisbx.quirks import find_quirks
from ocisbx.runtime.client import RuntimeClient
from ocisbx.values import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.plan import Plan


class Observed(NamedTuple):
    """`pid`: the running container's process 1; None, and then `unseen` says why."""

    subject: Subject
    pid: int | None
    unseen: str

    def posture(self) -> Posture:
        return judge(self.subject, live=self.pid, unseen=self.unseen)

    def prompt(self) -> str:
        return prompt(self.subject)


def observe_bundle(path: str) -> Observed:
    """The bundle at `path`, and the container that runs from it where one does.

    Raises:
        BundleError: its config.json cannot be read, or breaks the specification's schema.
    """
    document = read_config(path)
    if found := violations(document, "config"):
        raise BundleError(
            f"{show(path)} is not a valid bundle",
            why=str(found[0]),
            remedy="ocisbx bundle check DIR lists all",
        )
    owner, declared = _owner(path)
    own_ids = owner is not None and owner.cell == "user"
    subject = _subject(document, path, declared, cell_maps_root=own_ids)
    pid, unseen = _init_of(path, owner, declared)
    if owner is None or pid is None:
        return Observed(subject, None, unseen)
    return _seen(subject, path, pid, owner.pid)


def observe_running(plan: Plan, bundle: str, pid: int) -> Observed:
    """A container of this very process, whose process 1 is `pid`; before or while its payload runs.

    Raises:
        BundleError: its config.json cannot be read.
    """
    declared = Declared.from_dict(plan.policy())
    cell_maps_root = plan.cell == "user"
    subject = _subject(read_config(bundle), bundle, declared, cell_maps_root=cell_maps_root)
    if not is_init(pid, INIT_NODE):
        return Observed(subject, None, OWN_KERNEL)
    return _seen(subject, bundle, pid, os.getpid())


def observe_plan(plan: Plan, extra: Iterable[str] = ()) -> Observed:
    """What a plan would run, by its config.json; `extra`: names of further variables."""
    document = plan.standing_config(
        "", root=plan.root_directory or "rootfs", argv=("true",), environment=[]
    )
    declared = Declared.from_dict(plan.policy())
    bundle = find_places().bundles + "/none"
    subject = _subject(document, bundle, declared, cell_maps_root=plan.cell == "user")
    names = sorted({*plan.environment, *plan.inherit, *extra})
    return Observed(subject._replace(variables=tuple(names)), None, NOT_STARTED)


NOT_STARTED = "nothing was started"
NOT_RUNNING = "no container runs from it"
OWN_KERNEL = "its processes are not this kernel's: nothing of them stands in /proc"
GONE = "it ended while it was looked at"
ELSEWHERE = "its processes are in another pid namespace"


def _owner(path: str) -> tuple[Owner | None, Declared]:
    try:
        owner = read_owner(path)
    except BundleError:
        # Made by another program, or somebody else's: config.json is all there is.
        return None, Declared()
    try:
        return owner, Declared.from_dict(owner.policy)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(
            f"owner.json of {show(path)} was changed: its policy cannot be read",
            why=str(error),
            remedy="make the bundle anew",
        ) from error


def _subject(
    document: Any,  # noqa: ANN401 -- a config.json of anybody's
    path: str,
    declared: Declared,
    *,
    cell_maps_root: bool,
) -> Subject:
    process = document.get("process") or {}
    spec = spec_facts(
        document,
        caller=os.geteuid(),
        cell_maps_root=cell_maps_root,
        own=_own_places(path),
        base=path,
    )
    return Subject(
        declared=declared,
        spec=spec,
        live=None,
        filter=(document.get("linux") or {}).get("seccomp"),
        variables=tuple(str(entry).partition("=")[0] for entry in process.get("env") or ()),
        workdir=process.get("cwd", "/"),
    )


def _own_places(path: str) -> tuple[str, ...]:
    places = find_places()
    return (path, places.bundles, os.path.realpath(places.cache), places.cache)


def _init_of(path: str, owner: Owner | None, declared: Declared) -> tuple[int | None, str]:
    """The pid of the container's process 1, or why none can be named."""
    if owner is None or not owner.alive():
        return None, NOT_RUNNING
    client = RuntimeClient(
        path=owner.runtime_path,
        quirks=find_quirks(owner.runtime_name, owner.runtime_version),
        root=path,
        log=os.devnull,
        cell=owner.cell,
        args=tuple(owner.runtime_args),
    )
    if not client.knows(owner.id):
        return None, NOT_RUNNING
    if declared.own_kernel():
        return None, OWN_KERNEL
    if owner.pid_namespace != pid_namespace():
        return None, ELSEWHERE
    try:
        pid = client.state(owner.id).get("pid")
    except OcisbxError as error:
        return None, f"{owner.runtime_name} does not tell its process: {error.why}"
    return (pid, "") if isinstance(pid, int) and is_init(pid, INIT_NODE) else (None, OWN_KERNEL)


def _seen(subject: Subject, path: str, pid: int, driver: int) -> Observed:
    spec = subject.spec
    asked = {*MASKED_PATHS_RESTRICTED, *READONLY_PATHS, *(spec.hidden or ())}
    asked |= spec.read_only_paths or frozenset()
    paths = [path for path in asked if path.startswith("/proc/")]
    evidence = read_container(pid, driver=driver, paths=paths)
    # A pid that was given to somebody else meanwhile would have been read instead.
    if evidence is None or not is_init(pid, INIT_NODE):
        return Observed(subject, None, GONE)
    live = live_facts(evidence, spec, _own_places(path))
    return Observed(subject._replace(live=live), pid, "")
