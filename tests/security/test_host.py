"""Assertions with a scene of their own, from the host; beside each, what breaks it."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ocisbx import values
from ocisbx.backends import names
from ocisbx.backends.base import Call
from ocisbx.calls import run_plan
from ocisbx.cli import carry_out, output
from ocisbx.cli import run as run_module
from ocisbx.config import SandboxConfig
from ocisbx.errors import ConfigError
from ocisbx.result import Termination
from tests.box import eventually, nap, running
from tests.security.conftest import refused

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = [pytest.mark.runtime, pytest.mark.security]

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


# ------------------------------------------------------------------- 60, 61: without any cgroup
BOMB = """
import os, sys
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.setsid()
        os.execv("/bin/sleep", ["sleep", sys.argv[1]])
"""


def test_a_fork_bomb_ends_with_the_call(box: Box) -> None:
    """Bounded here, since nothing but a cgroup bounds it; its size does not matter to the end."""
    mark = nap()
    result = box.python(BOMB, mark, "150")
    assert result.exit_code == 0, result.stderr
    assert eventually(lambda: not running(mark), timeout_s=5.0)


HOG = """
import sys
try: bytearray(int(sys.argv[1]))
except MemoryError: sys.exit(3)
"""
# Go, hence runc, reserves far more addresses than it uses; gVisor knows this limit only.
LIMITS = {"runsc": "RLIMIT_AS"}
LIMIT_BYTES = 512 * MIB


def hog(box: Box, **options: object) -> int | None:
    """The exit code of a payload that asks for 1 GiB, while a neighbour waits for its end."""
    wait = "while ! test -e done; do sleep 0.02; done"
    with box.sandbox().start(["sh", "-c", wait]) as neighbour:
        code = box.python(HOG, str(2 * LIMIT_BYTES), **options).exit_code
        (box.workspace / "done").touch()
        end = neighbour.wait(20)
    assert end is not None
    assert end.exit_code == 0
    return code


def test_a_memory_hog_meets_its_limit(box: Box) -> None:
    limit = {LIMITS.get(box.runtime.name, "RLIMIT_DATA"): (LIMIT_BYTES, LIMIT_BYTES)}
    assert hog(box, limits={"rlimits": limit}) == 3


def test_a_memory_hog_meets_none_without_it(box: Box) -> None:
    assert hog(box) == 0


# ------------------------------------------------------------------------------------- 62: a flood
FLOOD_BYTES = 96 * MIB
CAP_BYTES = MIB
# What a driver may grow by that keeps a megabyte of output, with all that Python needs around it.
ROOM_BYTES = 24 * MIB


def flood(box: Box, cap_bytes: int, kept: list[bytes] | None) -> tuple[int, int]:
    """(bytes captured, bytes by which the driver grew)."""
    plan = box.sandbox(capture={"max_bytes": cap_bytes}).resolve()
    command = ("head", "-c", str(FLOOD_BYTES), "/dev/zero")
    call = Call(command, os.environ, on_stdout=None if kept is None else kept.append)
    # What earlier tests freed would be used again, and nothing would grow.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = psutil.Process().memory_info().rss
    result = run_plan(plan, call)
    assert result.termination is Termination.EXITED
    assert result.stdout_bytes == FLOOD_BYTES
    grown = psutil.Process().memory_info().rss - before
    return result.captured_stdout.total_bytes and len(result.stdout), grown


def test_a_flood_is_cut_and_kept_out_of_memory(box: Box) -> None:
    captured, grown = flood(box, CAP_BYTES, None)
    assert captured <= CAP_BYTES
    assert grown < ROOM_BYTES


def test_a_flood_grows_a_driver_that_keeps_it(box: Box) -> None:
    kept: list[bytes] = []
    captured, grown = flood(box, 2 * FLOOD_BYTES, kept)
    assert captured > CAP_BYTES
    assert grown > ROOM_BYTES
    assert sum(map(len, kept)) == FLOOD_BYTES


# ------------------------------------------------------------------- 68: escape sequences rendered
# Sets the title; clears the screen, in 7 and in 8 bits; turns what follows around.
SEQUENCES = ("\x1b]0;owned\x07", "\x1b[2J", "\x9b2J", "\u202e")
CONTROLS = {"\x1b", "\x07", "\x9b", "\u202e"}


def rendered(box: Box, capfd: pytest.CaptureFixture[str]) -> str:
    """All that the command line prints about payloads with such words, and of their output."""
    hostile = "".join(SEQUENCES)
    options = ["--runtime", box.runtime.path, "--workspace", str(box.workspace)]
    capfd.readouterr()
    if not box.lacks("the payload's end is reported by the init"):
        carry_out(["run", *options, "--", f"/no/such/{hostile}"])
    carry_out(["run", *options, f"--{hostile}", "--", "true"])
    carry_out(["run", *options, "--json", "--", "printf", "%s", hostile])
    with box.sandbox().start(["sh", "-c", "sleep 60", hostile]) as execution:
        carry_out(["ps"])
        carry_out(["ps", "--json"])
        carry_out(["inspect", execution.id])
        carry_out(["inspect", hostile])
    printed = capfd.readouterr()
    assert "owned" in printed.out
    assert "owned" in printed.err
    return printed.out + printed.err


def test_escape_sequences_are_inert(box: Box, capfd: pytest.CaptureFixture[str]) -> None:
    assert not CONTROLS & set(rendered(box, capfd))


def test_escape_sequences_act_when_nothing_is_rendered(
    box: Box, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ESCAPES", {})
    monkeypatch.setattr(output, "printable", str)
    monkeypatch.setattr(run_module, "printable", str)
    assert set(rendered(box, capfd)) >= CONTROLS


# ----------------------------------------------------------------- 69: files that are none, or huge
READ = """
import os, sys, types
from ocisbx import hints
if sys.argv[2] == "weakened":
    hints.os = types.SimpleNamespace(**{**vars(os), "O_NONBLOCK": 0})
print(repr(hints._interpreter(sys.argv[1])))
"""
PATIENCE_S = 4.0


def interpreter_of(path: Path, how: str) -> str:
    """What our hint takes for the interpreter of a workspace's file. Raises TimeoutExpired."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", READ, str(path), how],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.strip()


def hostile_files(directory: Path) -> list[Path]:
    fifo, device, huge = (directory / name for name in ("fifo", "device", "huge"))
    os.mkfifo(fifo)
    device.symlink_to("/dev/zero")
    huge.touch()
    os.truncate(huge, 1 << 42)
    return [fifo, device, huge]


def test_hostile_files_are_no_trap(tmp_path: Path) -> None:
    fifo, device, huge = hostile_files(tmp_path)
    assert [interpreter_of(path, "whole") for path in (fifo, device, huge)] == ["''"] * 3
    with pytest.raises(ConfigError, match="characters"):
        run_module.extra_environment({"env-file": [str(huge)]})
    with pytest.raises(ConfigError):
        SandboxConfig.from_toml(huge)


def test_hostile_files_trap_a_plain_reader(tmp_path: Path) -> None:
    fifo, _, _ = hostile_files(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        interpreter_of(fifo, "weakened")


# ---------------------------------------------------------------------------- 70: hostile words
STEERING = (
    "dev.gvisor.flag.host-uds", "DEV.gVisor.flag.debug", "run.oci.keep_original_groups",
    "run.oci.hooks.stdout", "run.oci.mount_context_type", "org.criu.config",
    "org.systemd.property.DevicePolicy", "io.katacontainers.config.hypervisor.path", "a\nb", "",
)  # fmt: skip
NAMES = ("../escaped", "a/b", "new\nline", "", ".", "..", "x" * 300, "-leading", "nul\0", "a b")


def annotated(key: str) -> SandboxConfig:
    return SandboxConfig(annotations={key: "all"})


@pytest.mark.parametrize("key", STEERING, ids=ascii)
def test_steering_annotations_are_refused(key: str) -> None:
    with pytest.raises(ConfigError):
        annotated(key)


def test_steering_annotations_get_in_without_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "check_annotation", lambda key, value: (key, value))
    for key in STEERING:
        assert annotated(key).annotations == {key: "all"}


@refused
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_hostile_names_are_refused(box: Box, name: str) -> None:
    with pytest.raises(ConfigError):
        names.claim_name(name, "0" * 20)
    assert carry_out(["run", "--name", name, "--", "true"]) != 0
    assert box.left() == []


def test_hostile_names_get_in_without_the_check(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "check_name", str)
    names.claim_name("../escaped", "0" * 20)
    escaped = box.run_directory / "ocisbx" / "escaped"
    assert escaped.read_text() == "0" * 20
    escaped.unlink()
