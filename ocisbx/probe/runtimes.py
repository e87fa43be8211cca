"""Finding runtimes: on $PATH and where distributions put them, each asked for its version."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING

from ocisbx import command
from ocisbx.errors import OcisbxError, RuntimeMissing
from ocisbx.host import RuntimeBinary
from ocisbx.places import ensure, find_places
from ocisbx.quirks import KNOWN_NAMES, VERSION_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable

# Debian puts runc into /usr/sbin, which is not on an ordinary user's PATH.
EXTRA_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

VERSION_TIMEOUT_S = 5.0
CACHE_FILE = "runtimes.json"


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
    not even asked: an earlier payload may have put it there.

    Raises:
        RuntimeMissing: a path of `named` is not there or is not a runtime.
    """
    cache = _Cache()
    found = [asked for path in named if path.startswith("/") for asked in [_ask(path, cache)]]
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
                found.append(_ask(path, cache))
            except RuntimeMissing:
                # Something else by this name: the caller did not ask for it by path.
                continue
    cache.save()
    return tuple(found)


def _inside(path: str, directories: tuple[str, ...]) -> bool:
    place = os.path.join(os.path.realpath(os.path.dirname(path)), "")
    return any(place.startswith(os.path.join(directory, "")) for directory in directories)


def _ask(path: str, cache: _Cache) -> RuntimeBinary:
    """Name and version of the runtime at `path`, by its own `--version`."""
    path = os.path.normpath(path)
    if (known := cache.get(path)) is not None:
        return known
    remedy = "give the absolute path of crun, runc or youki"
    if not os.path.isfile(path):
        raise RuntimeMissing(f"runtime {path} does not exist", remedy=remedy)
    try:
        completed = command.run([path, "--version"], timeout_s=VERSION_TIMEOUT_S)
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
    runtime = RuntimeBinary(name=line["name"], path=path, version=line["version"])
    cache.put(path, runtime)
    return runtime


class _Cache:
    """What `--version` said, by the binary's identity; a damaged file counts as empty."""

    def __init__(self) -> None:
        self._path = f"{find_places().cache}/{CACHE_FILE}"
        self._changed = False
        self._rows: dict[str, dict[str, str]] = {}
        try:
            with open(self._path, encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_uid == os.geteuid():
                    rows = json.load(file)
                    self._rows = rows if isinstance(rows, dict) else {}
        except (OSError, ValueError):
            pass

    def get(self, path: str) -> RuntimeBinary | None:
        row = self._rows.get(self._key(path))
        try:
            return (
                RuntimeBinary(path=path, name=row["name"], version=row["version"]) if row else None
            )
        except (LookupError, TypeError, ValueError):
            return None

    def put(self, path: str, runtime: RuntimeBinary) -> None:
        self._rows[self._key(path)] = {"name": runtime.name, "version": runtime.version}
        self._changed = True

    def save(self) -> None:
        """Write it whole or not at all; a cache that cannot be written is no error."""
        if not self._changed:
            return
        try:
            directory = ensure(os.path.dirname(self._path))
            handle, temporary = tempfile.mkstemp(dir=directory)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self._rows, file)
            os.replace(temporary, self._path)
        except (OSError, OcisbxError):
            return

    @staticmethod
    def _key(path: str) -> str:
        try:
            info = os.stat(path)
        except OSError:
            return path
        parts = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        return f"{path} {' '.join(map(str, parts))}"
