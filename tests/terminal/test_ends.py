"""How terminals end, and what they refuse."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import select
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import ocisbx
from ocisbx import ConfigError, ExpectEOF, ExpectTimeout, TerminalError, Unsupported
from ocisbx.expect.file import build_script
from ocisbx.expect.runner import run_script
from tests.box import PYTHON
from tests.terminal.conftest import UNABLE
from tests.terminal.driving import eventually, until

if TYPE_CHECKING:
    from ocisbx.host import RuntimeBinary
    from tests.box import Box

# What a terminal costs its process in descriptors, and somewhat more.
DESCRIPTORS = 10


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        (["sh", "-c", "exit 7"], ("exited", 7, None)),
        (["sh", "-c", "kill -TERM $$"], ("signaled", None, 15)),
        (["no-such-program"], ("not_found", None, None)),
        (["/etc/hosts"], ("not_executable", None, None)),
    ],
)
def test_its_end_is_told(box: Box, command: list[str], ending: tuple[str, int, int]) -> None:
    with box.sandbox().spawn(command) as terminal:
        result = terminal.wait(20)
    assert result is not None
    assert (result.termination, result.exit_code, result.signal) == ending
    assert result.usage.wall_s is not None or ending[0].startswith("not")
    assert terminal.wait() is result


def test_leaving_the_context_ends_it(box: Box) -> None:
    with box.sandbox(grace_s=5).spawn(
        ["sh", "-c", "trap 'echo bye; exit' TERM; while :; do sleep 0.05; done"]
    ) as terminal:
        pass
    result = terminal.wait()
    assert result is not None
    assert result.termination == "cancelled"


def test_what_floods_does_not_keep_its_end_back(box: Box) -> None:
    started = time.monotonic()
    with box.sandbox(grace_s=100).spawn(
        ["sh", "-c", "trap 'seq 100000; exit' TERM; yes & wait"]
    ) as terminal:
        until(terminal, "y")
    assert time.monotonic() - started < 60
    result = terminal.wait()
    assert result is not None
    assert result.termination == "cancelled"


def test_a_timeout_holds_though_nobody_looks(box: Box) -> None:
    with box.sandbox(timeout_s=0.5, grace_s=0).spawn(["sleep", "60"]) as terminal:
        assert eventually(lambda: terminal.has_ended)
        result = terminal.wait()
    assert result is not None
    assert result.termination == "timed_out"


def test_an_output_limit_holds(box: Box) -> None:
    capture = {"max_bytes": 10_000, "on_limit": "kill"}
    with box.sandbox(capture=capture).spawn(["yes"]) as terminal:
        said = terminal.read(timeout_s=20)
        result = terminal.wait()
    assert result is not None
    assert result.termination == "output_limit"
    assert len(said) > 10_000


def test_a_container_that_is_killed_is_an_end(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-c", "echo up; sleep 60"]) as terminal:
        until(terminal, "up\r\n")
        pid = terminal.raw._program._execution.init_pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
        assert terminal.read(timeout_s=20) == ""
        result = terminal.wait(20)
    assert result is not None
    assert (result.termination, result.signal) == ("signaled", 9)


def test_reads_and_writes_tell_the_end_and_the_time(box: Box) -> None:
    with box.sandbox().spawn(["sh", "-c", "read x; exit"]) as terminal:
        with pytest.raises(ExpectTimeout):
            terminal.read(1, timeout_s=0.1)
        assert terminal.read_some() is None
        terminal.sendline("x")
        assert terminal.read(timeout_s=20) == "x\r\n"
        assert terminal.read() == terminal.read_some() == ""
        assert eventually(lambda: terminal.has_ended)
        with pytest.raises(ExpectEOF):
            terminal.send("y")


def test_who_does_not_read_stops_who_types(box: Box) -> None:
    script = "import time, tty; tty.setraw(0); print('up', flush=True); time.sleep(60)"
    with box.sandbox(grace_s=0).spawn([PYTHON, "-I", "-S", "-c", script]) as terminal:
        until(terminal, "up")
        with pytest.raises(ExpectTimeout, match="does not read what is typed"):
            terminal.send("x" * 1_000_000, timeout_s=0.5)


def test_a_wrong_size_leaves_the_old_one(box: Box) -> None:
    with box.sandbox(grace_s=0).spawn(["sleep", "60"], size=(3, 4)) as terminal:
        for rows, columns in ((0, 80), (24, 100_000)):
            with pytest.raises(ConfigError):
                terminal.resize(rows, columns)
        assert terminal.size == (3, 4)
        terminal.resize(65_535, 1)
        assert terminal.size == (65_535, 1)


def test_there_is_no_such_key(box: Box) -> None:
    with box.sandbox(grace_s=0).spawn(["sleep", "60"]) as terminal:
        for key in ("", "cc", "1", " ", "\n", "é"):
            with pytest.raises(ConfigError):
                terminal.sendcontrol(key)


def test_a_descriptor_that_is_closed_under_us_is_said(box: Box) -> None:
    terminal = box.sandbox(grace_s=0).spawn(["sleep", "60"])
    mine = os.dup(terminal.fileno())
    os.close(terminal.fileno())
    for attempt in (
        terminal.read_some,
        lambda: terminal.send("x"),
        lambda: terminal.resize(1, 1),
        lambda: terminal.echo,
    ):
        with pytest.raises(TerminalError, match="terminal cannot be"):
            attempt()
    # Put back: its number may be somebody else's by the time of the end.
    os.dup2(mine, terminal.fileno(), inheritable=False)
    os.close(mine)
    terminal.close()


def test_a_forked_process_holds_none(box: Box) -> None:
    with box.sandbox().spawn(["cat"]) as terminal:
        pid = os.fork()
        if not pid:
            time.sleep(60)
            os._exit(0)
        try:
            terminal.sendeof()
            assert terminal.read(timeout_s=20) == ""
            result = terminal.wait(20)
            assert result is not None
            assert result.exit_code == 0
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_nothing_is_left_open(box: Box) -> None:
    sandbox = box.sandbox()
    with sandbox.spawn(["true"]):
        pass
    gc.collect()
    assert eventually(lambda: threading.active_count() == 1)
    before = psutil.Process().num_fds()
    for _ in range(3):
        with sandbox.spawn(["cat"]):
            pass
    assert eventually(lambda: threading.active_count() == 1)
    assert psutil.Process().num_fds() == before


def resident_bytes() -> int:
    rss: int = psutil.Process().memory_info().rss
    return rss


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_at_once_by_one_thread(box: Box) -> None:
    """A user has 200 session keyrings (kernel.keys.maxkeys), one for each container, and other
    tests run beside this one: MANY may be more where they do not. On the others each is a process
    of many megabytes."""
    count = int(os.environ.get("MANY", "60")) if box.runtime.name == "crun" else 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count * DESCRIPTORS)), hard))
    sandbox = box.sandbox()
    before_bytes = resident_bytes()
    terminals = [sandbox.spawn(["cat"]) for _ in range(count)]
    try:
        assert threading.active_count() == 2
        for turn in range(3):
            echoed(terminals, turn)
        assert resident_bytes() - before_bytes < count * 64 * 1024 + (8 << 20)
        for terminal in terminals:
            terminal.sendeof()
        codes = {result.exit_code for terminal in terminals if (result := terminal.wait(60))}
        assert codes == {0}
    finally:
        for terminal in terminals:
            terminal.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_hundred_of_one_session(yard: Box) -> None:
    """One container, so one of the session keyrings of a user. gVisor lets out no terminal that is
    made inside, which tests/sessions shows."""
    if yard.runtime.name == "runsc":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, max(soft, 200 * DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with yard.session() as session, contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        threads, before_bytes = threading.active_count(), resident_bytes()
        terminals = [stack.enter_context(session.spawn(["cat"])) for _ in range(200)]
        for turn in range(3):
            echoed(terminals, turn)
        # One for all, and no more.
        assert threading.active_count() <= threads + 1
        assert resident_bytes() - before_bytes < 200 * 64 * 1024 + (8 << 20)


def echoed(terminals: list[ocisbx.Terminal], turn: int) -> None:
    """Type a line on each, and read it twice: as the terminal shows it, and as `cat` does."""
    poller = select.poll()
    missing = {}
    for number, terminal in enumerate(terminals):
        terminal.sendline(f"{turn} {number}")
        poller.register(terminal.fileno(), select.POLLIN)
        missing[terminal.fileno()] = (terminal, f"{turn} {number}\r\n" * 2)
    while missing:
        came = poller.poll(20_000)
        assert came
        for descriptor, _ in came:
            terminal, wanted = missing.pop(descriptor)
            said = terminal.read_some() or ""
            assert wanted.startswith(said)
            if said == wanted:
                poller.unregister(descriptor)
            else:
                missing[descriptor] = (terminal, wanted[len(said) :])


def test_asyncio(box: Box) -> None:
    fields: dict[str, Any] = {
        "runtime": {"names": [box.runtime.path]},
        "workspace": str(box.workspace),
    }

    async def one(sandbox: ocisbx.AsyncSandbox, word: str) -> str:
        async with sandbox.spawn(["cat"], size=(2, 3)) as terminal:
            assert terminal.size == (2, 3)
            assert terminal.echo
            with pytest.raises(ExpectTimeout):
                await terminal.read(1, timeout_s=0.05)
            await terminal.sendline(word)
            said: str = await terminal.read(2 * len(word) + 4, timeout_s=20)
            await terminal.sendeof()
            assert await terminal.read() == ""
            result = await terminal.wait(20)
        assert result is not None
        assert result.exit_code == 0
        return said

    async def all_of_them() -> list[str]:
        async with ocisbx.AsyncSandbox(**fields) as sandbox:
            return await asyncio.gather(*(one(sandbox, f"w{n}") for n in range(5)))

    assert asyncio.run(all_of_them()) == [f"w{n}\r\nw{n}\r\n" for n in range(5)]


def test_a_wait_of_asyncio_may_be_cancelled(box: Box) -> None:
    fields: dict[str, Any] = {
        "runtime": {"names": [box.runtime.path]},
        "workspace": str(box.workspace),
    }

    async def work() -> None:
        async with ocisbx.AsyncSandbox(**fields, grace_s=0) as sandbox:
            terminal = await sandbox.spawn(["sleep", "60"])
            assert await terminal.wait(0.05) is None
            waiting = asyncio.ensure_future(terminal.wait())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not terminal.has_ended
            await terminal.close()

    asyncio.run(work())


@pytest.mark.parametrize("runtime", UNABLE, ids=lambda one: f"{one.name}-{one.version}")
def test_a_runtime_without_terminals_is_refused(box: Box, runtime: RuntimeBinary) -> None:
    with pytest.raises(Unsupported, match="cannot give the payload a terminal"):
        box.sandbox().spawn(["true"])


def test_a_transcript_tells_no_secret(box: Box) -> None:
    path = box.base / "cast"
    script = "stty -echo; printf '? '; read a; stty echo; echo $((${#a})); read b; echo over"
    with box.sandbox().spawn(["sh", "-c", script], transcript=str(path)) as terminal:
        until(terminal, "? ")
        terminal.sendline("first")
        until(terminal, "5\r\n")
        terminal.sendline("open")
        assert terminal.read(timeout_s=20) == "open\r\nover\r\n"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["version"] == 2
    assert [data for _, code, data in lines[1:] if code in "im"] == ["input was hidden", "open\n"]
    assert "first" not in path.read_text()


def test_a_transcript_leaves_out_what_is_called_secret(box: Box) -> None:
    path = box.base / "cast"
    script = "stty raw -echo; printf up; head -c 6 >/dev/null"
    with box.sandbox().spawn(["sh", "-c", script], transcript=str(path)) as terminal:
        until(terminal, "up")
        assert not terminal.hides_input
        terminal.sendline("hide!", secret=True)
        assert terminal.read(timeout_s=20) == ""
    assert "hide" not in path.read_text()


def test_a_transcript_leaves_out_a_secret_that_the_program_gave_away(box: Box) -> None:
    path = box.base / "cast"
    script = "printf 'retype hunter2: '; read a; echo over"
    case = {"expect": r"retype (\w+): ", "answer": "${1}", "action": "next"}
    steps = [{"cases": [case]}, {"expect": "over"}]
    document = {"steps": steps, "secrets": {"pass": {"env": "ANY"}}}
    with box.sandbox().spawn(["sh", "-c", script], transcript=str(path)) as terminal:
        report = run_script(build_script(document), terminal, {"pass": "hunter2"})
    assert report.outcome == "ok", report
    assert "retype [secret]: " in path.read_text()
    assert "hunter2" not in path.read_text()


def test_a_transcript_leaves_out_what_is_called_secret_where_it_is_echoed(box: Box) -> None:
    path = box.base / "cast"
    script = "printf '? '; read a; echo \"$a and $a\""
    with box.sandbox().spawn(["sh", "-c", script], transcript=str(path)) as terminal:
        until(terminal, "? ")
        terminal.sendline("hunter2", secret=True)
        assert terminal.read(timeout_s=20) == "hunter2\r\nhunter2 and hunter2\r\n"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    shown = "".join(data for _, code, data in lines[1:] if code == "o")
    assert shown == "? [secret]\r\n[secret] and [secret]\r\n"


def test_a_transcript_leaves_out_a_secret_that_is_typed_again(box: Box) -> None:
    path = box.base / "cast"
    script = "printf '? '; read a; read b; read c"
    with box.sandbox().spawn(["sh", "-c", script], transcript=str(path)) as terminal:
        until(terminal, "? ")
        terminal.sendline("käthe2", secret=True)
        terminal.sendline("is käthe2 mine")
        terminal.sendline("no")
        terminal.read(timeout_s=20)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    typed = "".join(data for _, code, data in lines[1:] if code == "i")
    shown = "".join(data for _, code, data in lines[1:] if code == "o")
    assert typed == "no\n"
    assert shown == "? [secret]\r\nis [secret] mine\r\nno\r\n"
