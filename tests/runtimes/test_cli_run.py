"""`ocisbx run` for real: exit codes, messages, streams, signals, plans, secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.box import PYTHON, eventually, running
from tests.command_line import OCISBX, ROOT, environment, ocisbx, said, start
from tests.runtimes.conftest import of_each_name

if TYPE_CHECKING:
    from tests.box import Box

# Neither these nor anything below them may be imported by a `run` that has its plan.
HEAVY = frozenset({
    "argparse", "asyncio", "dataclasses", "hashlib", "inspect", "jsonschema", "logging", "pathlib",
    "pexpect", "psutil", "pydantic", "pydantic_core", "pyte", "regex", "rich", "shutil", "ssl",
    "subprocess",
    "tempfile", "tomllib", "traceback", "typer", "unittest", "urllib",
})  # fmt: skip
OURS = frozenset({
    "audit", "backends", "backends.base", "backends.channel", "backends.driven", "backends.endings",
    "backends.execution",
    "backends.names", "backends.oci", "backends.placeholders", "backends.spares", "backends.stdio",
    "backends.wishes", "bundle",
    "bundle.covers", "bundle.directory", "bundle.owner", "bundle.record", "bundle.view", "calls",
    "capture",
    "capture.feeder", "capture.forward", "capture.reader", "capture.sinks", "capture.stream",
    "cgroup", "cgroup.box", "cgroup.files", "cgroup.kill", "cgroup.place", "cgroup.stats", "cli",
    "cli.options", "cli.output", "cli.run", "cli.run_options",
    "command", "commands", "errors", "init", "init.protocol", "init.wire", "outcome",
    "placeholder", "places",
    "plan", "plans", "probe", "probe.cgroups", "probe.mounted", "probe.processes", "quantities",
    "quirks", "result", "runtime",
    "runtime.client", "runtime.kept_state", "runtime.log", "runtime.sealed", "steady", "values",
    "version",
})  # fmt: skip
LOST = """
import os, signal
from ocisbx.cli.run import Interrupts
class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
try:
    with Interrupts() as interrupts:
        Dropped()
        interrupts.begin()
        print("lost")
except KeyboardInterrupt:
    print("heard")
"""
IMPORTS = """\
import atexit, os, sys
from ocisbx import cli
code = cli.carry_out(["run", "--", "true"])
sys.stderr.write("\\n".join(sys.modules))
sys.exit(code)
"""


@of_each_name
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--", "true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 124"], 124),
        (["sh", "-c", "exit 125"], 125),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["--timeout", "0.2", "sleep", "60"], 124),
        (["/usr"], 126),
        (["no-such-program"], 127),
        (["--max-output", "1k", "--on-output-limit", "kill", "yes"], 141),
        (["--no-such-option", "true"], 125),
        (["--workspace", "/nonexistent", "true"], 125),
        (["--runtime", "/bin/true", "true"], 125),
        (["--runtime", "/nonexistent/crun", "true"], 125),
        (["-m", "5", "true"], 125),
        (["-v", "/proc", "true"], 125),
        (["-t", "sh", "-c", "[ -t 0 ] && exit 6"], 6),
        (["--transcript", "x", "true"], 125),
        (["-e", "=x", "true"], 125),
    ],
)
def test_exit_codes(box: Box, arguments: list[str], code: int) -> None:
    done = ocisbx(box, "run", *arguments, stdout=subprocess.DEVNULL, capture_output=False)
    assert done.returncode == code


def test_streams_pass_and_notes_come_once(box: Box) -> None:
    script = ["run", "--", "sh", "-c", "echo out; echo err >&2"]
    first, second = ocisbx(box, *script), ocisbx(box, *script)
    assert first.stdout == second.stdout == "out\n"
    assert said(first) == second.stderr == "err\n"
    notes = first.stderr.removesuffix("err\n").splitlines()
    assert all(" not enforced here: " in note for note in notes)


def test_standard_input_is_forwarded_only_when_asked(box: Box) -> None:
    assert ocisbx(box, "run", "cat", input="secret").stdout == ""
    assert ocisbx(box, "run", "-i", "cat", input="hello").stdout == "hello"


def test_the_first_byte_comes_before_the_end(box: Box) -> None:
    with start(box, "run", "sh", "-c", "echo first; sleep 60") as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "first\n"
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(20) == 130
    assert box.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_payload(box: Box, number: int) -> None:
    mark = f"60.{time.time_ns()}"
    with start(box, "run", "sh", "-c", f"echo up; exec sleep {mark}") as driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        driver.stdout.readline()
        driver.send_signal(number)
        assert driver.wait(20) == 130
        assert "Traceback" not in driver.stderr.read()
    assert not running(mark)
    assert box.left() == []


def test_a_second_signal_hurries(box: Box) -> None:
    script = "trap 'echo heard' TERM INT; echo up; while :; do sleep 0.1; done"
    with start(box, "run", "--grace", "60", "sh", "-c", script) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        driver.send_signal(signal.SIGINT)
        # Two that come at once are one.
        assert driver.stdout.readline() == "heard\n"
        assert driver.poll() is None
        driver.send_signal(signal.SIGINT)
        assert driver.wait(20) == 130
    assert box.left() == []


def test_a_signal_while_it_prepares(box: Box) -> None:
    """Whenever it comes: 130 or the signal itself, no traceback of ours, nothing left."""
    for delay_s in (0.05, 0.15, 0.25, 0.4):
        with start(box, "run", "sleep", "60") as driver:
            time.sleep(delay_s)
            driver.send_signal(signal.SIGTERM)
            _, told = driver.communicate(timeout=20)
        assert driver.returncode in (130, -signal.SIGTERM), told
        assert eventually(lambda: not box.left()), (delay_s, box.left())


def test_a_signal_whose_exception_python_ignored_is_not_lost(box: Box) -> None:
    """pydantic's native part drops what is raised while it compiles a pattern."""
    argv = [sys.executable, "-c", LOST]
    done = subprocess.run(argv, env=environment(box), capture_output=True, text=True, check=False)
    assert "Exception ignored in" in done.stderr
    assert done.stdout == "heard\n"


def test_a_reader_that_leaves_ends_the_payload(box: Box) -> None:
    line = f"{' '.join(OCISBX)} run yes | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}; echo ${{PIPESTATUS[0]}}"],
        env=environment(box),
        cwd=box.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "y\n141\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["schema", "sandbox"], ["run", "--help"]])
def test_our_own_printing_into_a_closed_pipe(box: Box, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = ocisbx(box, *arguments, stdout=writer, stderr=subprocess.PIPE, capture_output=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_json_is_one_result_and_nothing_else(box: Box) -> None:
    done = ocisbx(box, "run", "--json", "--", "sh", "-c", "echo a; echo b >&2; exit 7")
    assert (done.returncode, done.stderr) == (7, "")
    result = json.loads(done.stdout)
    assert (result["termination"], result["exit_code"]) == ("exited", 7)
    assert (result["stdout"], result["stderr"]) == ("a\n", "b\n")
    assert result["runtime"]["path"] == box.runtime.path
    assert result["bundle"] is None


def test_messages_say_what_and_what_to_do(box: Box) -> None:
    tool = box.base / "tools" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)
    outside = ocisbx(box, "run", tool)
    assert outside.returncode == 127
    what, remedy = said(outside).splitlines()
    assert what.startswith(f"ocisbx: {tool} ")
    assert remedy.startswith("  remedy: ")
    option = remedy.removeprefix("  remedy: ").split()
    assert ocisbx(box, "run", *option, tool).stdout == "ran\n"


def test_a_message_holds_no_escape_sequence_of_the_commands(box: Box) -> None:
    done = ocisbx(box, "run", "no\nsuch\x1b[1m")
    assert done.returncode == 127
    assert said(done).startswith("ocisbx: no\\nsuch\\x1b[1m is neither in the container nor on")
    assert "\x1b" not in done.stderr


def test_a_timeout_and_a_cut_are_said(box: Box) -> None:
    done = ocisbx(box, "run", "--timeout", "0.2", "sleep", "60")
    assert said(done) == "ocisbx: 'sleep' timed out after 0.2 s\n"
    done = ocisbx(box, "run", "--max-output", "4", "printf", "abcdefgh")
    assert done.stdout == "abcd"
    assert said(done).startswith("ocisbx: stdout was cut at 4 of 8 bytes\n  remedy: --max-output")


def test_unexpected_exceptions_are_bugs_without_a_traceback(box: Box) -> None:
    broken = box.base / "broken"
    (broken / "ocisbx_broken").mkdir(parents=True)
    source = "import ocisbx.cli as c\nc.VERBS['run'] = ('nowhere', '')\nc.main()\n"
    (broken / "start.py").write_text(source)
    for debug in ("", "1"):
        done = subprocess.run(
            [sys.executable, broken / "start.py", "run", "true"],
            env=environment(box, {"OCISBX_DEBUG": debug}),
            cwd=box.workspace,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 125
        assert "ocisbx: unexpected ModuleNotFoundError: " in done.stderr
        assert "report what the same command says with OCISBX_DEBUG=1" in done.stderr
        assert ("Traceback" in done.stderr) == bool(debug)


def test_a_run_with_a_plan_imports_only_what_it_needs(box: Box) -> None:
    assert ocisbx(box, "run", "--", "true").returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        env=environment(box),
        cwd=box.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = done.stderr.split()
    assert not HEAVY & set(modules)
    ours = {name.removeprefix("ocisbx.") for name in modules if name.startswith("ocisbx.")}
    assert ours == OURS


def test_a_plan_is_used_again_and_anew_when_something_changed(box: Box) -> None:
    plans = box.base / "cache" / "ocisbx" / "plans"
    config = box.base / "sandbox.toml"
    config.write_text("[env.set]\nV = '1'\n")
    line = ["run", "--config", str(config), "sh", "-c", "echo $V"]
    assert ocisbx(box, *line).stdout == ocisbx(box, *line).stdout == "1\n"
    assert len(list(plans.iterdir())) == 1
    config.write_text("[env.set]\nV = '2'\n")
    assert ocisbx(box, *line).stdout == "2\n"
    assert len(list(plans.iterdir())) == 2


def test_variables_win_and_stay_out_of_plans_and_logs(box: Box) -> None:
    secret = f"s3cret-{time.time_ns()}"
    script = "echo $TOKEN $MINE $PATH; cat /proc/1/environ"
    for _ in range(2):
        done = ocisbx(
            box,
            *("run", "-e", f"TOKEN={secret}", "-e", "MINE", "-e", "PATH=/usr/bin:/bin"),
            *("-e", "NOBODYS", "sh", "-c", script),
            env={"MINE": "m"},
        )
        assert done.stdout.startswith(f"{secret} m /usr/bin:/bin\n")
    plans = list((box.base / "cache" / "ocisbx" / "plans").iterdir())
    assert len(plans) == 1
    kept = [path for path in box.base.rglob("*") if path.is_file() and os.access(path, os.R_OK)]
    assert plans[0] in kept
    assert not [path for path in kept if secret.encode() in path.read_bytes()]
    assert plans[0].stat().st_mode & 0o777 == 0o600


def test_the_audit_log_can_be_left_out(box: Box) -> None:
    log = Path(box.environment["XDG_STATE_HOME"]) / "ocisbx" / "audit.jsonl"
    ocisbx(box, "run", "--no-audit", "true")
    assert not log.exists()
    ocisbx(box, "run", "true")
    assert len(log.read_text().splitlines()) == 1


def test_a_dry_run_starts_nothing(box: Box) -> None:
    done = ocisbx(box, "run", "--dry-run", "--", "touch", "made")
    assert done.returncode == 0
    args = json.loads(done.stdout)["process"]["args"]
    assert (args[0], args[-3:]) == ("/.ocisbx/init", ["--", "touch", "made"])
    done = ocisbx(box, "run", "--dry-run", "--json", "--", "touch", "made")
    document = json.loads(done.stdout)
    assert set(document) == {"config", "argv", "enforcement", "warnings", "host"}
    assert document["argv"][0] == box.runtime.path
    host = box.base / "host.json"
    host.write_text(json.dumps(document["host"] | {"cwd": str(box.workspace)}))
    again = ocisbx(box, "run", "--dry-run", "--json", "--host", host, "--", "touch", "made")
    config, planned = document["config"], json.loads(again.stdout)["config"]
    assert planned == config
    assert not (box.workspace / "made").exists()


def test_names(box: Box) -> None:
    with start(box, "run", "--name", "one", "sh", "-c", "echo up; sleep 60") as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        rows = json.loads(ocisbx(box, "ps", "--json").stdout)
        assert [(row["name"], row["command"][0]) for row in rows] == [("one", "sh")]
        assert "one" in ocisbx(box, "ps").stdout.splitlines()[1]
        taken = ocisbx(box, "run", "--name", "one", "true")
        assert (taken.returncode, "in use" in taken.stderr) == (125, True)
        shown = json.loads(ocisbx(box, "inspect", "--json", "one").stdout)
        assert shown["owner"]["alive"] is True
        assert shown["config"]["process"]["args"][-3:] == ["sh", "-c", "echo up; sleep 60"]
        driver.terminate()
        assert driver.wait(20) == 130
    assert ocisbx(box, "run", "--name", "one", "true").returncode == 0


def test_gc_removes_what_a_dead_driver_left_and_nothing_else(box: Box) -> None:
    with start(box, "run", "sh", "-c", "echo up; sleep 60") as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        driver.kill()
    with start(box, "run", "sh", "-c", "echo up; sleep 60") as alive:
        assert alive.stdout is not None
        alive.stdout.readline()
        gone = ocisbx(box, "gc")
        assert gone.returncode == 0
        assert len(list(box.bundles.iterdir())) == 1
        assert json.loads(ocisbx(box, "gc", "--json").stdout) == []
        alive.terminate()
        assert alive.wait(20) == 130


def test_a_path_that_is_not_the_projects(box: Box) -> None:
    """A caller's module by our name, in the workspace, is not imported."""
    (box.workspace / "ocisbx").mkdir()
    (box.workspace / "ocisbx" / "__init__.py").write_text("raise SystemExit(99)")
    assert ocisbx(box, "run", "--", PYTHON, "-I", "-c", "print(1)").stdout == "1\n"
    assert ROOT.is_dir()
