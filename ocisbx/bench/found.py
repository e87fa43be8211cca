"""Which launchers there are here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ocisbx import command
from ocisbx.backends.trial import Trier
from ocisbx.bench.bare import BARE
from ocisbx.bench.launchers import Absent, Launcher, Row, Target
from ocisbx.bench.ours import OURS
from ocisbx.bench.peers import PEERS
from ocisbx.errors import ConfigError
from ocisbx.probe.programs import find_program
from ocisbx.probe.runtimes import find_runtimes
from ocisbx.quirks import KNOWN_NAMES, find_quirks, parse_version
from ocisbx.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ocisbx.host import RuntimeBinary

VERSION_TIMEOUT_S = 10.0
ROWS: Mapping[str, Row] = {row.name: row for row in (*PEERS, BARE, *OURS)}


def find_launchers(
    runtimes: Sequence[str], tell: Callable[[str], None]
) -> tuple[list[Launcher], list[Absent]]:
    """What is present, in the order of the table, and what is not; `runtimes`: names or paths, of
    which the newest of each name is taken; none: of all names. Raises ConfigError."""
    for name in runtimes:
        if not name.startswith("/") and name not in KNOWN_NAMES:
            raise ConfigError(
                f"{name} is not a runtime", remedy=f"one of {', '.join(KNOWN_NAMES)}, or a path"
            )
    launchers: list[Launcher] = []
    absent: list[Absent] = []
    for row in PEERS:
        found = _find_peer(row)
        (launchers if isinstance(found, Launcher) else absent).append(found)  # type: ignore[arg-type]
    for binary in _chosen(runtimes):
        target = Target(binary.name, binary.path, binary.version)
        tell(f"trying {target.path}")
        trial = Trier().try_runtime(binary)
        if not trial.works:
            absent.append(Absent(target.title, trial.runtime.trouble))
            continue
        target = target._replace(platform=trial.runtime.platform)
        own_kernel = find_quirks(binary.name, binary.version).user_kernel
        for row in (BARE, *OURS):
            if row.host_kernel and own_kernel:
                absent.append(Absent(row.title(target), "its kernel serves the files of the start"))
            else:
                launchers.append(_launcher(row, target))
    known = {launcher.target.name for launcher in launchers if launcher.target}
    absent += [
        Absent(name, "not installed")
        for name in KNOWN_NAMES
        if not runtimes and name not in known and not any(a.title.startswith(name) for a in absent)
    ]
    return launchers, absent


def _launcher(row: Row, target: Target) -> Launcher:
    is_ours = row is not BARE
    return Launcher(
        row=row.name,
        title=row.title(target),
        words=row.words,
        program=target.path,
        version=VERSION if is_ours else target.version,
        target=target,
        bare=BARE.title(target) if is_ours else "",
    )


def _find_peer(row: Row) -> Launcher | Absent:
    if not row.program:
        return Launcher(row.name, row.title(None), row.words, "", "")
    path = find_program(row.program)
    if path is None:
        return Absent(row.name, "not installed")
    try:
        done = command.run(
            [path, *row.version_args], timeout_s=VERSION_TIMEOUT_S, environment=os.environ
        )
    except (OSError, command.CommandTimeout) as error:
        return Absent(row.name, f"{path} cannot be started: {error}")
    if not done.status.ok:
        said = done.stderr.decode(errors="replace").strip()
        return Absent(row.name, f"{path}: {said.splitlines()[-1] if said else done.status}")
    said = (done.stdout or done.stderr).decode(errors="replace").strip()
    return Launcher(row.name, row.title(None), row.words, path, said.split("\n")[0])


def _chosen(asked: Sequence[str]) -> list[RuntimeBinary]:
    """The newest of each name that was asked for, and each that was asked for by its path."""
    paths = [word for word in asked if word.startswith("/")]
    names = [word for word in asked if not word.startswith("/")] if asked else list(KNOWN_NAMES)
    everything = find_runtimes(paths)
    chosen = [binary for binary in everything if binary.path in paths]
    for name in sorted(names, key=KNOWN_NAMES.index):
        of_name = [binary for binary in everything if binary.name == name]
        if of_name:
            chosen.append(max(of_name, key=lambda one: parse_version(one.version) or ()))
    return list(dict.fromkeys(chosen))
