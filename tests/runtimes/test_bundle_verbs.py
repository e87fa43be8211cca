"""Kept bundles for real: made, checked, run; rerun by the bare runtime, without ocisbx."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.command_line import ocisbx, said
from tests.runtimes.conftest import of_each_name, on_any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.box import Box

NAMES = ["plain", "with  spaces", "-dash", "new\nline", "quote'\"$HOME", "ünï", "a:b"]
SCRIPT = "echo $GREETING; echo to stderr >&2; exit 5"


@pytest.fixture
def kept(box: Box) -> Path:
    done = ocisbx(
        box,
        *("bundle", "make", "-o", box.base / "kept", "-e", "GREETING=hello"),
        *("--", "sh", "-c", SCRIPT),
    )
    assert (done.returncode, done.stdout) == (0, f"{box.base}/kept\n"), done.stderr
    return box.base / "kept"


def bare_shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A shell that knows nothing of ocisbx: no variable, no path."""
    argv = ["env", "-i", "/bin/sh", "-c", line]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=cwd, **pipes) as shell:
        for _ in range(200):
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = shell.communicate(timeout=0.3)
                return subprocess.CompletedProcess(argv, shell.returncode, out, err)
            # youki may have missed the container's end (ocisbx-runtimes(7)).
            root = psutil.Process(shell.pid)
            for one in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.send_signal(signal.SIGCHLD)
        shell.kill()
    raise AssertionError("it does not end")


def edit(bundle: Path, *path: str, value: object) -> None:
    document = json.loads((bundle / "config.json").read_text())
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (bundle / "config.json").write_text(json.dumps(document))


def test_what_a_kept_bundle_is(box: Box, kept: Path) -> None:
    assert {path.name for path in kept.iterdir()} == {
        "config.json",
        "covers",
        "owner.json",
        "rootfs",
        "sandbox.toml",
    }
    assert (kept / "config.json").stat().st_mode & 0o777 == 0o600
    assert os.access(kept / "rootfs/.ocisbx/init", os.X_OK)
    assert "hello" not in (kept / "sandbox.toml").read_text()
    assert "GREETING" in (kept / "sandbox.toml").read_text()
    assert (kept / "config.json").read_text().startswith('{\n  "ociVersion"')


@of_each_name
@pytest.mark.parametrize("name", NAMES)
def test_the_printed_command_runs_it_without_ocisbx(box: Box, name: str) -> None:
    made = ocisbx(
        box, "bundle", "make", "-o", name, "-e", "GREETING=hello", "--", "sh", "-c", SCRIPT
    )
    assert made.returncode == 0, made.stderr
    assert ocisbx(box, "bundle", "check", "--", name).returncode == 0
    printed = ocisbx(box, "bundle", "rerun", "--", name)
    line = printed.stdout.splitlines()[-1]
    assert "python" not in line
    if "\n" in name and box.lacks("a bundle is rerun by hand from a path with a newline"):
        return
    for _ in range(2):
        done = bare_shell(line, box.base)
        assert (done.stdout, done.returncode) == ("hello\n", 5), done.stderr
        assert done.stderr == "to stderr\n"


def test_rerun_itself_runs_it(box: Box, kept: Path) -> None:
    done = ocisbx(box, "bundle", "rerun", "--exec", kept)
    assert (done.stdout, done.stderr, done.returncode) == ("hello\n", "to stderr\n", 5)


def test_a_run_keeps_what_it_ran(box: Box) -> None:
    directory = box.base / "kept"
    done = ocisbx(box, "run", "--json", "--keep-bundle", directory, "--", "sh", "-c", "exit 3")
    result = json.loads(done.stdout)
    assert (done.returncode, result["bundle"]) == (3, str(directory))
    assert result["enforcement"]["network"]["state"] == "enforced"
    assert ocisbx(box, "bundle", "check", directory).stdout == f"{directory}: valid\n"
    assert ocisbx(box, "bundle", "run", directory).returncode == 3
    used = ocisbx(box, "run", "--keep-bundle", directory, "true")
    assert (used.returncode, "is not empty" in used.stderr) == (125, True)
    (box.base / "empty").mkdir()
    assert ocisbx(box, "run", "--keep-bundle", box.base / "empty", "true").returncode == 0


def test_a_root_of_the_callers_keeps_the_init_beside_it(box: Box) -> None:
    root = box.base / "root"
    for name in ("usr", "dev", "proc", "sys", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    directory = box.base / "kept"
    done = ocisbx(
        box,
        *("run", "--preset", "yolo", "--network", "none", "--rootfs", root, "-v", "/usr:ro"),
        *("--keep-bundle", directory, "--", "/bin/sh", "-c", "echo made > /file; echo ran"),
    )
    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr
    assert (root / "file").read_text() == "made\n"
    assert os.access(directory / "init", os.X_OK)
    assert not (directory / "rootfs").exists()
    line = ocisbx(box, "bundle", "rerun", directory).stdout.splitlines()[-1]
    assert bare_shell(line, box.base).stdout == "ran\n"


def test_run_takes_what_was_edited(box: Box, kept: Path) -> None:
    words = ["sh", "-c", "echo edited; cat"]
    edit(kept, "process", "args", value=["/.ocisbx/init", "-w", "/dev/shm", "--", *words])
    done = ocisbx(box, "bundle", "run", "-i", kept, input="and read\n")
    assert (done.stdout, said(done), done.returncode) == ("edited\nand read\n", "", 0)
    done = ocisbx(box, "bundle", "run", "--json", kept)
    result = json.loads(done.stdout)
    assert (result["stdout"], result["command"]) == ("edited\n", words)
    assert result["runtime"]["path"] == box.runtime.path
    assert box.left() == []


def test_run_takes_the_timeout_of_sandbox_toml(box: Box) -> None:
    directory = box.base / "kept"
    ocisbx(box, "bundle", "make", "-o", directory, "--timeout", "0.3", "--", "sleep", "60")
    assert ocisbx(box, "bundle", "run", directory).returncode == 124


def test_check_names_path_and_rule(box: Box, kept: Path) -> None:
    edit(kept, "process", "cwd", value="relative")
    edit(kept, "linux", "gidMappings", value=[])
    done = ocisbx(box, "bundle", "check", kept)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "$.process.cwd must be an absolute path",
        "$.linux uidMappings and gidMappings must be given together",
    ]
    document = json.loads(ocisbx(box, "bundle", "check", "--json", kept).stdout)
    assert document["valid"] is False
    assert document["violations"][0] == {
        "path": "$.process.cwd",
        "rule": "must be an absolute path",
    }
    for verb in ("run", "rerun"):
        refused = ocisbx(box, "bundle", verb, kept)
        assert refused.returncode == 125
        assert "is not a valid bundle: $.process.cwd" in refused.stderr


def test_diff_names_the_paths(box: Box, kept: Path) -> None:
    other = box.base / "other"
    ocisbx(box, "bundle", "make", "-o", other, "-e", "GREETING=hi", "--", "sh", "-c", SCRIPT)
    assert ocisbx(box, "bundle", "diff", kept, kept).returncode == 0
    done = ocisbx(box, "bundle", "diff", kept, other)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("$.process.env[")
    assert line.endswith(': "GREETING=hello" -> "GREETING=hi"')
    (row,) = json.loads(ocisbx(box, "bundle", "diff", "--json", kept, other).stdout)
    assert (row["left"], row["right"]) == ("GREETING=hello", "GREETING=hi")


def test_inspect_hides_values_of_variables(box: Box, kept: Path) -> None:
    done = ocisbx(box, "inspect", kept)
    assert done.returncode == 0
    assert "hello" not in done.stdout
    assert "GREETING=[redacted]" in done.stdout
    assert box.runtime.path in done.stdout
    shown = json.loads(ocisbx(box, "inspect", "--json", kept).stdout)
    assert shown["bundle"] == str(kept)
    assert shown["owner"]["runtime"]["version"] == box.runtime.version
    assert any(entry.startswith("PATH=/usr") for entry in shown["config"]["process"]["env"])


def test_what_cannot_be_kept_leaves_nothing(box: Box) -> None:
    for where in (box.base / "no" / "parent", "/proc/kept", box.base / "file"):
        (box.base / "file").touch()
        done = ocisbx(box, "bundle", "make", "-o", where, "--", "true")
        assert done.returncode == 125
        assert said(done).startswith("ocisbx: ")
        assert "  remedy: " in done.stderr
    assert not (box.base / "no").exists()


@on_any
def test_verbs_about_the_host(box: Box) -> None:
    for verb in ("version", "features"):
        plain, document = ocisbx(box, verb), ocisbx(box, verb, "--json")
        assert (plain.returncode, document.returncode) == (0, 0), plain.stderr
        assert plain.stdout
        assert json.loads(document.stdout)
    doctor = ocisbx(box, "doctor", "--json")
    assert doctor.returncode in (0, 1)
    assert {row["severity"] for row in json.loads(doctor.stdout)} <= {"weakens", "informs"}
    assert ocisbx(box, "schema").stdout.split() == ["sandbox", "result", "expect"]
    assert json.loads(ocisbx(box, "schema", "result").stdout)["title"] == "RunResult"
