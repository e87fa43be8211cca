"""Finding runtimes: on $PATH and where distributions put them, each asked for its version."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ocisbx import command
from ocisbx.errors import RuntimeMissing
from ocisbx.host import RuntimeBinary
from ocisbx.probe.remembered import runtime_memory
from ocisbx.probe.speed import slowness
from ocisbx.quirks import KNOWN_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ocisbx.probe.remembered import RuntimeMemory

# Debian puts runc into /usr/sbin, which is not on an ordinary user's PATH.
EXTRA_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# First line of `--version`: "runc version 1.1.5+ds1", "crun version 1.8.1", "youki version 0.7.0",
# "youki version: 0.7.0", "runsc version release-20260907.0".
VERSION_LINE = re.compile(
    r"^(?P<name>crun|runc|runsc|youki)(?:-rootless)? version:? (?P<version>\S+)"
)
# By the machine's speed as many times more.
VERSION_TIMEOUT_S = 5.0
# crun 1.21 makes the directory of its containers before it tells: one that is there already.
VERSION_WORDS = ("--root", "/", "--version")
# Name and version of what is no runtime.
UNKNOWN = "unknown"


def source_tree_directory() -> str:
    """`.runtimes/bin` beside the package, where `tools/install-runtimes` puts things."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(os.path.dirname(package), ".runtimes", "bin")


def search_directories() -> list[str]:
    """Where runtimes are looked for, in order, each once."""
    path = os.environ.get("PATH", "").split(":")
    wanted = [source_tree_directory(), *(p for p in path if p.startswith("/")), *EXTRA_DIRECTORIES]
    return list(dict.fromkeys(directory.rstrip("/") for directory in wanted))


def find_runtimes(
    named: Iterable[str] = (), writable: tuple[str, ...] = ()
) -> tuple[RuntimeBinary, ...]:
    """Every usable runtime of a known name, and those of `named` given by absolute path.

    What $PATH leads to in a directory of `writable` (a virtual environment in the workspace) is
    not even asked: an earlier payload may have put it there. What is wrong with one of `named` is
    its `trouble`: another name of the caller's list may be sound.
    """
    memory = runtime_memory()
    found = [_ask_named(path, memory) for path in named if path.startswith("/")]
    seen = {os.path.realpath(runtime.path) for runtime in found}
    for directory in search_directories():
        for name in KNOWN_NAMES:
            path = f"{directory}/{name}"
            real = os.path.realpath(path)
            if not os.access(path, os.X_OK) or real in seen:
                continue
            if directory != source_tree_directory() and (
                _inside(path, writable) or _inside(real, writable)
            ):
                continue
            seen.add(real)
            try:
                found.append(_ask(path, memory))
            except RuntimeMissing:
                # Something else by this name: the caller did not ask for it by path.
                continue
    memory.save()
    return tuple(found)


def _ask_named(path: str, memory: RuntimeMemory) -> RuntimeBinary:
    path = os.path.normpath(path)
    try:
        return _ask(path, memory)
    except RuntimeMissing as error:
        return RuntimeBinary(
            name=UNKNOWN, path=path, version=UNKNOWN, trouble=str(error), remedy=error.remedy
        )


def _inside(path: str, directories: tuple[str, ...]) -> bool:
    place = os.path.join(os.path.realpath(os.path.dirname(path)), "")
    return any(place.startswith(os.path.join(directory, "")) for directory in directories)


def _ask(path: str, memory: RuntimeMemory) -> RuntimeBinary:
    """Name and version of the runtime at `path`, by its own `--version`. Raises RuntimeMissing."""
    if (known := memory.version(path)) is not None:
        return RuntimeBinary(name=known[0], path=path, version=known[1])
    remedy = f"give the absolute path of {', '.join(KNOWN_NAMES[:-1])} or {KNOWN_NAMES[-1]}"
    if not os.path.isfile(path):
        raise RuntimeMissing(f"runtime {path} does not exist", remedy=remedy)
    try:
        completed = command.run([path, *VERSION_WORDS], timeout_s=VERSION_TIMEOUT_S * slowness())
    except OSError as error:
        raise RuntimeMissing(
            f"runtime {path} cannot be started", why=error.strerror or "", remedy=remedy
        ) from error
    except command.CommandTimeout as error:
        raise RuntimeMissing(
            f"runtime {path} does not answer --version", why=error.what, remedy=remedy
        ) from error
    text = completed.stdout.decode(errors="replace")
    line = VERSION_LINE.match(text)
    if line is None or not completed.status.ok:
        shown = (text or completed.stderr.decode(errors="replace")).strip().split("\n")[0][:100]
        raise RuntimeMissing(
            f"{path} is not a runtime that ocisbx knows",
            why=f"--version: {shown!r}, {completed.status}",
            remedy=remedy,
        )
    memory.put_version(path, line["name"], line["version"])
    return RuntimeBinary(name=line["name"], path=path, version=line["version"])
