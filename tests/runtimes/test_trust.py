"""What an earlier payload may have prepared for the next call, and what the caller has closed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.compile import compile_plan
from ocisbx.config import SandboxConfig
from ocisbx.container.merge import merge_preset
from ocisbx.probe.gather import gather
from tests.command_line import environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box

pytestmark = pytest.mark.runtime


def test_no_runtime_is_asked_that_a_payload_could_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ws" / "bin" / "crun"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho crun version 99.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    host = gather(merge_preset(SandboxConfig(workspace=str(tmp_path / "ws"))))
    assert str(program) not in [runtime.path for runtime in host.runtimes]
    assert not (tmp_path / "asked").exists()


def test_own_places_are_known_by_their_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "CACHE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    host = gather(merge_preset(SandboxConfig(workspace=str(tmp_path))))
    assert f"{tmp_path}/CACHE_HOME/ocisbx" in host.own_directories


def test_a_directory_that_is_gone_is_nobodys_concern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert gather(merge_preset(SandboxConfig(workspace="none"))).cwd == "/"


@pytest.mark.parametrize(
    ("capability", "shared"), [("+CAP_SYS_ADMIN", "own"), ("+CAP_CHOWN", "shared")]
)
def test_who_may_mount_has_a_root_of_its_own(box: Box, capability: str, shared: str) -> None:
    fields = {"runtime": {"names": [box.runtime.path]}, "workspace": str(box.workspace)}
    fields |= {"isolation": {"capabilities": [capability]}}
    assert compile_plan(SandboxConfig.build(fields)).share_root is (shared == "shared")


def test_the_captures_of_a_failed_call_are_gone(box: Box) -> None:
    def fail(_: bytes) -> None:
        raise RuntimeError("of the callback")

    running = box.sandbox().start(["echo", "x"], on_stdout=fail)
    with pytest.raises(RuntimeError, match="of the callback"):
        running.wait()
    assert running.logs() == b""


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        ("<&-", "the input descriptor 0 is not open"),
        (">&-", "the output descriptor 1 is not open"),
    ],
)
def test_no_file_of_ours_stands_for_a_closed_descriptor(box: Box, closed: str, words: str) -> None:
    line = f'exec "$@" run -i -- sh -c "echo out; head -c 9" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-P", "-m", "ocisbx"],
        env=environment(box),
        cwd=box.workspace,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 125
    assert words in done.stderr
    assert not box.left()


def test_printing_to_a_full_disk_is_no_bug_of_ours(box: Box) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ocisbx", "version"],
            env=environment(box),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 125
    assert done.stderr == "ocisbx: cannot write to descriptor 1: No space left on device\n"
