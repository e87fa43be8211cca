"""What can go wrong around a call, provoked for real: one clear error, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import psutil
import pytest

import ocisbx
from ocisbx.backends.base import Call, Step
from ocisbx.backends.driven import CLEANUP_S
from ocisbx.calls import run_plan
from ocisbx.errors import OcisbxError, RuntimeFailed, RuntimeMissing
from ocisbx.probe.processes import command_line
from ocisbx.result import Termination as T
from tests.box import PATIENCE_S, eventually, nap, running
from tests.runtimes.conftest import of_each_name, on_any
from tests.runtimes.stage import RUNC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ocisbx.plan import Plan
    from tests.box import Box

pytestmark = pytest.mark.runtime


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


NOT_RUNTIMES = {
    "missing": ("", "does not exist"),
    "says nothing": ("exit 0", "is not a runtime"),
    "fails": ("echo runc version 1.0; exit 1", "is not a runtime"),
    "another program": ("echo GNU bash, version 5", "is not a runtime"),
    "hangs": ("exec sleep 600", "does not answer --version"),
}


@on_any
@pytest.mark.parametrize(("text", "words"), NOT_RUNTIMES.values(), ids=NOT_RUNTIMES.keys())
def test_no_runtime(box: Box, text: str, words: str) -> None:
    path = box.base / "runc"
    if text:
        script(path, text)
    with pytest.raises(RuntimeMissing, match=words) as raised:
        box.run(["true"], runtime={"names": [str(path)]})
    assert raised.value.remedy
    assert raised.value.exit_code == 125


def broken(box: Box, text: str) -> Plan:
    """A plan on a runtime that was sound when it was tried, and from then on does this."""
    flag = box.base / "flag"
    path = script(box.base / "runc", f'[ -e {flag} ] || exec {RUNC} "$@"\n{text}')
    plan = box.sandbox(runtime={"names": [path]}).resolve()
    flag.touch()
    return plan


@on_any
def test_a_runtime_that_hangs(box: Box) -> None:
    plan = broken(box, "exec sleep 600")
    started = time.monotonic()
    with pytest.raises(RuntimeFailed, match="could not start the container") as raised:
        run_plan(plan, Call(("true",), os.environ, start_timeout_s=1))
    assert 1 <= time.monotonic() - started < PATIENCE_S
    assert "after 1 s" in raised.value.why


ENDS = {
    "fails": ("exit 1", "it ended with 1"),
    "says why": ("echo cannot do that >&2; exit 1", "cannot do that"),
    "succeeds with nothing": ("exit 0", "it ended with 0"),
    "returns a payload's code": ("exit 137", "it ended with 137"),
    "kills itself": ("kill -9 $$", "it was killed by signal 9"),
    "says a megabyte": ("yes | head -c 1000000 >&2; echo the end >&2; exit 1", "the end"),
}


@on_any
@pytest.mark.parametrize(("text", "words"), ENDS.values(), ids=ENDS.keys())
def test_a_runtime_that_ends_without_a_container(box: Box, text: str, words: str) -> None:
    with pytest.raises(RuntimeFailed) as raised:
        run_plan(broken(box, text), Call(("true",), os.environ))
    assert words in raised.value.why
    assert raised.value.exit_code == 125


def test_a_runtime_that_is_gone_after_the_plan_was_made(box: Box) -> None:
    plan = broken(box, "exit 1")
    os.unlink(plan.runtime.path)
    with pytest.raises(RuntimeMissing, match="cannot be started"):
        run_plan(plan, Call(("true",), os.environ))


def end_of(plan: Plan, call: Call) -> str:
    """The termination, or `failed` where it was the runtime's failure, with a reason."""
    try:
        return run_plan(plan, call).termination
    except RuntimeFailed as error:
        return "failed" if error.why and error.exit_code == 125 else f"unclear: {error!r}"


@pytest.mark.parametrize("step", [Step.RUNTIME_STARTED, Step.CREATED, Step.RUNNING])
def test_a_runtime_that_dies_half_way(box: Box, step: Step) -> None:
    """SIGKILL from outside: the container is ended too, and the result is no payload's."""
    mark = nap()

    def kill_runtime(reached: Step) -> None:
        if reached is step:
            for child in psutil.Process().children():
                child.kill()

    call = Call(("sh", "-c", f"sleep {mark} & sleep {mark}"), os.environ, on_step=kill_runtime)
    started = time.monotonic()
    # Where the container outlives its runtime, the payload goes on to its own end.
    end = end_of(box.sandbox(timeout_s=1, grace_s=0).resolve(), call)
    assert end in {T.TIMED_OUT, T.SIGNALED, "failed"}
    assert end != "failed" or step is Step.RUNTIME_STARTED
    assert time.monotonic() - started < PATIENCE_S
    assert eventually(lambda: running(mark) == [])


@pytest.mark.parametrize("delay_ms", [0, 3, 6, 10, 15, 25, 40])
def test_a_runtime_that_dies_at_some_moment(box: Box, delay_ms: int) -> None:
    mark = nap()
    timers: list[threading.Timer] = []

    def kill_runtime() -> None:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def on_step(reached: Step) -> None:
        if reached is Step.RUNTIME_STARTED:
            timers.append(threading.Timer(delay_ms / 1000, kill_runtime))
            timers[0].start()

    plan = box.sandbox(timeout_s=0.5, grace_s=0).resolve()
    started = time.monotonic()
    end = end_of(plan, Call(("sleep", mark), os.environ, on_step=on_step))
    assert end in {T.TIMED_OUT, T.SIGNALED, "failed"}
    timers[0].join()
    assert time.monotonic() - started < PATIENCE_S
    assert eventually(lambda: running(mark) == [])


def is_init(pid: int) -> bool:
    """By its first argument; a process that just executes has none for a moment."""
    return any(word.endswith(b"/init") for word in command_line(pid)[:1])


def test_an_init_that_is_killed_from_outside(box: Box) -> None:
    """The kernel kills the payload with it, and that is what is told."""
    mark = nap()
    with box.sandbox().start(["sh", "-c", f"echo ready; sleep {mark}"]) as execution:
        assert eventually(lambda: execution.logs() == b"ready\n")
        (init,) = [pid for pid in running(mark) if is_init(pid)]
        os.kill(init, signal.SIGKILL)
        result = execution.wait()
    assert result is not None
    assert (result.termination, result.signal) == (T.SIGNALED, 9)


class Raised(Exception):
    """What a callback of the caller's raises."""


@of_each_name
@pytest.mark.parametrize("kind", [Raised, KeyboardInterrupt, SystemExit, OcisbxError])
@pytest.mark.parametrize("stream", ["on_stdout", "on_stderr"])
def test_an_exception_of_a_callback(box: Box, kind: type[BaseException], stream: str) -> None:
    mark = nap()

    def callback(_: bytes) -> None:
        raise kind("from the callback")

    with pytest.raises(kind, match="from the callback"):
        box.sh(f"echo x; echo x >&2; sleep {mark}", **{stream: callback})
    assert running(mark) == []


@of_each_name
@pytest.mark.parametrize("step", list(Step))
def test_an_exception_of_an_observer(box: Box, step: Step) -> None:
    def on_step(reached: Step) -> None:
        if reached is step:
            raise Raised(step)

    plan = box.sandbox().resolve()
    with pytest.raises(Raised):
        run_plan(plan, Call(("sh", "-c", "sleep 0.1"), os.environ, on_step=on_step))


def to_the_process(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def to_another_thread(number: signal.Signals) -> None:
    """The kernel may choose so: then it does not interrupt what the main thread waits in."""
    signal.pthread_kill(threading.get_ident(), number)


@of_each_name
@pytest.mark.parametrize("give", [to_the_process, to_another_thread])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_driver(
    box: Box, number: signal.Signals, give: Callable[[signal.Signals], None]
) -> None:
    """SIGINT is KeyboardInterrupt; a handler that raises does the same for SIGTERM."""
    mark = nap()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def send() -> None:
        if eventually(lambda: running(mark)):
            # Now it waits for nothing but the end.
            time.sleep(0.1)
            give(number)

    before = signal.signal(number, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            box.run(["sleep", mark])
    finally:
        sender.join()
        signal.signal(number, before)
    assert running(mark) == []


DEAF = """\
#!{python}
import signal, subprocess, sys
done = subprocess.Popen(["{runtime}", *sys.argv[1:]], close_fds=False)
while done.returncode is None:
    # The runtime itself may miss it, too.
    try:
        done.wait(0.1)
    except subprocess.TimeoutExpired:
        done.send_signal(signal.SIGCHLD)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
if "run" in sys.argv:
    signal.sigwait([signal.SIGCHLD])
sys.exit(done.returncode)
"""


@pytest.mark.parametrize("pooled", [False, True])
def test_a_runtime_that_missed_the_end_of_its_container(box: Box, *, pooled: bool) -> None:
    """As youki and runc 1.3 do, who begin to listen for SIGCHLD when the container runs (runc issue
    5208)."""
    path = box.base / box.runtime.name
    path.write_text(DEAF.format(python=sys.executable, runtime=box.runtime.path))
    path.chmod(0o755)
    sandbox = box.sandbox(runtime={"names": [str(path)]})
    started = time.monotonic()
    if pooled:
        with ocisbx.Pool(sandbox.config, 1) as pool:
            assert pool.run(["true"]).exit_code == 0
    else:
        assert sandbox.run(["true"]).exit_code == 0
    assert time.monotonic() - started < CLEANUP_S


def test_a_descriptor_that_is_not_open(box: Box) -> None:
    with pytest.raises((OcisbxError, OSError)):
        box.run(["cat"], input=9999)


# ------------------------------------------------------------------------ directories and disks
def test_no_runtime_directory(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent, relative, read-only, somebody else's: /tmp/ocisbx-UID is used."""
    readonly = box.base / "readonly"
    readonly.mkdir(mode=0o500)
    for value in (None, "", "relative", str(box.base / "missing"), str(readonly), "/usr", "/root"):
        if value is None:
            monkeypatch.delenv("XDG_RUNTIME_DIR")
        else:
            monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        result = box.run(["true"])
        assert result.exit_code == 0
        assert not os.path.exists(f"/tmp/ocisbx-{os.getuid()}/bundles/{result.id}")


def test_a_runtime_directory_that_others_may_write(box: Box) -> None:
    foreign = box.run_directory / "ocisbx"
    foreign.mkdir()
    foreign.chmod(0o777)
    with pytest.raises(OcisbxError, match="only you can write") as raised:
        box.run(["true"])
    assert raised.value.remedy
    foreign.rmdir()
    elsewhere = box.base / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    foreign.symlink_to(elsewhere)
    with pytest.raises(OcisbxError, match="only you can write"):
        box.run(["true"])
    foreign.unlink()


@of_each_name
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("kind", ["read-only", "missing parent", "a file"])
def test_caches_and_state_are_no_condition(
    box: Box, variable: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = box.base / "place"
    if kind == "a file":
        place.touch()
    if kind == "read-only":
        place.mkdir(mode=0o500)
    monkeypatch.setenv(variable, str(place / "deep" if kind == "missing parent" else place))
    for _ in range(2):
        assert box.text("echo works") == "works\n"


# ------------------------------------------------------------------------------------- long runs
def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


@of_each_name
def test_soak(box: Box) -> None:
    """300 calls: the fixture sees descriptors, threads and directories; memory is seen here."""
    sandbox = box.sandbox()
    for _ in range(50):
        sandbox.run(["true"])
    before = resident_bytes()
    for number in range(250):
        result = sandbox.run(["echo", str(number)])
        assert result.stdout == f"{number}\n".encode()
    assert resident_bytes() - before < 3 << 20


def test_the_module_functions_keep_no_more_than_they_should(box: Box) -> None:
    for number in range(40):
        result = ocisbx.run(
            ["true"],
            env={"set": {"N": str(number)}},
            runtime={"names": [box.runtime.path]},
            workspace=str(box.workspace),
        )
        assert result.exit_code == 0
