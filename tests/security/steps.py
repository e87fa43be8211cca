"""Steps of the driver, weakened: the only place where the tests put something else in its place."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx import command
from ocisbx import init as programs
from ocisbx.backends import oci
from ocisbx.backends.stdio import PayloadStdio
from ocisbx.bundle import directory, view
from ocisbx.capture import InputFeeder
from ocisbx.runtime.client import RuntimeClient
from tools import build_init

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.security.scene import Scene

# The first number after stdio and the init's socket.
FREE_FD = 4


@contextlib.contextmanager
def _patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@contextlib.contextmanager
def programs_of(sources: Path, *edits: tuple[str, str, str]) -> Iterator[None]:
    """The init and the cell, built from sources in which `old` is `new` ((file, old, new), ...)."""
    shutil.copytree(build_init.SOURCE_DIR, sources, ignore=shutil.ignore_patterns("bin"))
    for name, old, new in edits:
        text = (sources / name).read_text()
        assert text.count(old) == 1, f"{name} has no single {old!r}"
        (sources / name).write_text(text.replace(old, new))
    build_init.build(sources, sources / "bin", os.uname().machine)
    view.init_bytes.cache_clear()
    with _patched() as patch:
        patch.setattr(programs, "_BIN_DIR", str(sources / "bin"))
        try:
            yield
        finally:
            view.init_bytes.cache_clear()


def changed_programs(
    *edits: tuple[str, str, str],
) -> Callable[[Scene], AbstractContextManager[None]]:
    """`programs_of` in a scene."""

    def step(scene: Scene) -> AbstractContextManager[None]:
        return programs_of(scene.box.base / "programs", *edits)

    return step


# CLOSE_RANGE_CLOEXEC of the init and of the cell, and their way without it.
_keeping = changed_programs(
    ("sys.h", "if (SYS3(close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) == 0)", "if (first >= 0)")
)


@contextlib.contextmanager
def _spawning(change: Callable[[list[str], dict[str, Any]], list[str]]) -> Iterator[None]:
    """`change` is given argv and keywords of each start of a runtime, and returns the argv."""
    spawn = command.spawn

    def changed(argv: list[str], **keywords: Any) -> command.Child:
        keywords["descriptors"] = dict(keywords["descriptors"])
        return spawn(change(list(argv), keywords), **keywords)

    with _patched() as patch:
        patch.setattr(command, "spawn", changed)
        yield


@contextlib.contextmanager
def descriptor_kept(scene: Scene) -> Iterator[None]:
    """`--preserve-fds` with a directory of the host at the next number."""

    def change(argv: list[str], keywords: dict[str, Any]) -> list[str]:
        keywords["descriptors"][FREE_FD] = scene.leaked
        return argv

    args = RuntimeClient.run_args

    def two(self: RuntimeClient, *arguments: Any, **keywords: Any) -> list[str]:
        argv = args(self, *arguments, **keywords)
        argv[argv.index("--preserve-fds") + 1] = "2"
        return argv

    with _keeping(scene), _spawning(change), _patched() as patch:
        patch.setattr(RuntimeClient, "run_args", two)
        yield


@contextlib.contextmanager
def listen_fds(scene: Scene) -> Iterator[None]:
    """sd_listen_fds(3): two descriptors from number 3 on, for the process of this id."""

    def change(argv: list[str], keywords: dict[str, Any]) -> list[str]:
        keywords["descriptors"][FREE_FD] = scene.leaked
        keywords["environment"] = {**command.ENVIRONMENT, "LISTEN_FDS": "2"}
        keywords.pop("executable", None)
        return ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", *argv]

    with _keeping(scene), _spawning(change):
        yield


@contextlib.contextmanager
def inheriting(scene: Scene) -> Iterator[None]:
    with _keeping(scene), _patched() as patch:
        patch.setattr(command, "_inheritable", lambda kept: [])
        yield


@contextlib.contextmanager
def environment_passed(_: Scene) -> Iterator[None]:
    def change(argv: list[str], keywords: dict[str, Any]) -> list[str]:
        names = ("OCISBX_CANARY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK")
        passed = {name: os.environ[name] for name in names}
        keywords["environment"] = {**command.ENVIRONMENT, **passed}
        return argv

    with _spawning(change):
        yield


@contextlib.contextmanager
def stdout_is_a_file(scene: Scene) -> Iterator[None]:
    output = PayloadStdio._output

    def to_file(self: PayloadStdio, name: str, sink: Any, on_data: Any) -> int:
        pipe = output(self, name, sink, on_data)
        assert pipe is not None
        if name == "stdout":
            os.close(pipe)
            # Made by the first byte, which never comes.
            sink._fd = sink._make()
            pipe = os.open(sink.path, os.O_RDWR)
            # Nothing comes out of a file: the probe must not wait for an answer.
            scene.finish()
        return pipe

    with _patched() as patch:
        patch.setattr(PayloadStdio, "_output", to_file)
        yield


@contextlib.contextmanager
def stdin_is_a_terminal(scene: Scene) -> Iterator[None]:
    def terminal(self: PayloadStdio, source: Any) -> int:
        controller, end = os.openpty()
        reading, writing = os.pipe()
        self.feeder = InputFeeder(writing, source)
        os.close(reading)
        scene.waiting.append(controller)
        return end

    with _patched() as patch:
        patch.setattr(PayloadStdio, "_input", terminal)
        yield


@contextlib.contextmanager
def open_bundle(_: Scene) -> Iterator[None]:
    create, write = directory.BundleDirectory.create, view.write_file

    def opened(self: directory.BundleDirectory, mode: int, owner: Any = None) -> None:
        create(self, mode | 0o055, owner)

    def readable(path: str, data: bytes, mode: int) -> None:
        write(path, data, mode | 0o044)

    with _patched() as patch:
        patch.setattr(directory.BundleDirectory, "create", opened)
        patch.setattr(directory, "write_file", readable)
        yield


@contextlib.contextmanager
def bundle_stays(_: Scene) -> Iterator[None]:
    with _patched() as patch:
        patch.setattr(oci, "_remove", lambda bundle: None)
        yield
