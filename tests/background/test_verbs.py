"""The verbs of the command line, each from a process of its own."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from ocisbx import Container
from ocisbx.bundle.record import State
from tests.box import eventually
from tests.command_line import OCISBX, environment, ocisbx, said, start

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime


def detach(yard: Box, *words: str) -> str:
    done = ocisbx(yard, "run", "-d", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_run_in_the_background_from_many_processes(yard: Box) -> None:
    script = "echo one; echo two; echo err >&2; read x; exit 3"
    reader, writer = os.pipe()
    done = ocisbx(yard, "run", "-d", "-i", "--name", "it", "--", "sh", "-c", script, stdin=reader)
    container_id = done.stdout.strip()
    assert Container.find("it").id == container_id
    (row,) = json.loads(ocisbx(yard, "ps", "--json").stdout)
    assert (row["id"], row["name"], row["state"]) == (container_id, "it", "running")
    assert row["pid"] == Container.find("it").record.supervisor.pid
    (used,) = map(json.loads, ocisbx(yard, "stats", "--json", "--no-stream").stdout.splitlines())
    assert used["name"] == "it"
    assert ocisbx(yard, "inspect", "--json", "it").returncode == 0
    assert eventually(lambda: Container.find("it").logs("stderr"))
    logs = ocisbx(yard, "logs", "it")
    assert (logs.stdout, logs.stderr) == ("one\ntwo\n", "err\n")
    assert ocisbx(yard, "logs", "--tail", "1", container_id).stdout == "two\n"
    assert ocisbx(yard, "logs", "--tail", "0", "it").stdout == ""
    late = ocisbx(yard, "wait", "--timeout", "0.1", "it")
    assert (late.returncode, "has not ended in 0.1 s" in late.stderr) == (125, True)
    waiting = start(yard, "wait", "it")
    os.close(writer)
    os.close(reader)
    assert waiting.wait(20) == 3
    waiting.communicate()
    assert ocisbx(yard, "ps", "--json").stdout == "[]\n"
    assert "exited (3)" in ocisbx(yard, "ps", "-a").stdout
    whole = json.loads(ocisbx(yard, "wait", "--json", "it").stdout)
    assert (whole["id"], whole["stdout"], whole["exit_code"]) == (container_id, "one\ntwo\n", 3)
    assert ocisbx(yard, "rm", "it").stdout == "it\n"
    assert ocisbx(yard, "ps", "-a", "--json").stdout == "[]\n"
    assert ocisbx(yard, "wait", "it").returncode == 125


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 9"], 9),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["--timeout", "0.2", "--", "sleep", "60"], 124),
        (["--max-output", "1k", "--on-output-limit", "kill", "--", "yes"], 141),
    ],
)
def test_the_exit_code_of_wait_is_that_of_run(yard: Box, words: list[str], code: int) -> None:
    container_id = detach(yard, *words)
    assert ocisbx(yard, "wait", container_id).returncode == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nosuchprogram"], 127),
        (["/usr"], 126),
        (["--runtime", "/bin/true", "--", "true"], 125),
        (["--name", "a/b", "--", "true"], 125),
        (["--posture", "--", "true"], 125),
        (["--workspace", "/nonexistent", "--", "true"], 125),
    ],
)
def test_what_cannot_start_is_told_by_the_caller_and_leaves_nothing(
    yard: Box, words: list[str], code: int
) -> None:
    done = ocisbx(yard, "run", "-d", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said(done).startswith("ocisbx: ")
    assert Container.all() == []


def test_create_then_start(yard: Box) -> None:
    done = ocisbx(
        yard, "create", "--json", "--name", "later", "--", "sh", "-c", "echo up; sleep 60"
    )
    assert json.loads(done.stdout) == {"id": Container.find("later").id, "name": "later"}
    assert "created" in ocisbx(yard, "ps", "-a").stdout
    assert ocisbx(yard, "start", "later").stdout == "later\n"
    again = ocisbx(yard, "start", "later", "nobody")
    assert again.returncode == 125
    assert "later is running" in again.stderr
    assert "'nobody' is no container" in again.stderr
    refused = ocisbx(yard, "rm", "later")
    assert (refused.returncode, "remedy: ocisbx stop" in refused.stderr) == (125, True)
    assert ocisbx(yard, "kill", "-s", "sigterm", "later").stdout == "later\n"
    assert ocisbx(yard, "wait", "later").returncode == 143
    assert ocisbx(yard, "kill", "later").returncode == 125
    created = ocisbx(yard, "create", "--name", "wrong", "--", "nosuchprogram")
    assert created.returncode == 0
    wrong = ocisbx(yard, "start", "wrong")
    assert (wrong.returncode, "nosuchprogram" in wrong.stderr) == (127, True)


def test_stop_and_forced_removal(yard: Box) -> None:
    for name in ("a", "b"):
        detach(yard, "--name", name, "--", "sh", "-c", "trap '' TERM; sleep 60")
    began = time.monotonic()
    assert ocisbx(yard, "stop", "-t", "0.3", "a").stdout == "a\n"
    assert time.monotonic() - began < 20
    assert ocisbx(yard, "wait", "a").returncode == 130
    assert ocisbx(yard, "rm", "-f", "a", "b").stdout == "a\nb\n"
    assert Container.all() == []


def test_logs_follow_to_the_end(yard: Box) -> None:
    reader, writer = os.pipe()
    script = "echo first; read x; echo last; echo err >&2"
    ocisbx(yard, "run", "-d", "-i", "--name", "f", "--", "sh", "-c", script, stdin=reader)
    following = start(yard, "logs", "-f", "f")
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    assert following.poll() is None
    os.close(writer)
    os.close(reader)
    out, err = following.communicate(timeout=20)
    assert (following.returncode, out, err) == (0, "last\n", "err\n")


def test_attach_shows_what_comes_and_ends_as_it_does(yard: Box) -> None:
    reader, writer = os.pipe()
    script = "echo before; while read x; do echo $x; done; echo after; exit 4"
    ocisbx(yard, "run", "-d", "-i", "--name", "f", "--", "sh", "-c", script, stdin=reader)
    assert eventually(lambda: Container.find("f").logs() == b"before\n")

    def shows_something(attached: subprocess.Popen[str]) -> bool:
        assert attached.stdout is not None
        os.write(writer, b"meanwhile\n")
        return bool(select.select([attached.stdout], [], [], 0.1)[0])

    left = start(yard, "attach", "f")
    assert eventually(lambda: shows_something(left))
    left.send_signal(signal.SIGINT)
    assert left.wait(20) == 130
    left.communicate()
    attached = start(yard, "attach", "f")
    assert eventually(lambda: shows_something(attached))
    os.close(writer)
    os.close(reader)
    out, _ = attached.communicate(timeout=20)
    *meanwhile, last = out.splitlines()
    assert (attached.returncode, set(meanwhile), last) == (4, {"meanwhile"}, "after")
    assert ocisbx(yard, "attach", "f").returncode == 125


def test_logs_since(yard: Box) -> None:
    container_id = detach(yard, "--", "sh", "-c", "echo old; sleep 5; echo new; echo more")
    assert ocisbx(yard, "wait", container_id).returncode == 0
    assert ocisbx(yard, "logs", "--since", "1d", container_id).stdout == "old\nnew\nmore\n"
    assert ocisbx(yard, "logs", "--since", "2001-01-01", container_id).stdout.startswith("old")
    assert ocisbx(yard, "logs", "--since", "2999-01-01T00:00:00Z", container_id).stdout == ""
    # To the second, and an entry holds what came within one.
    moment = time.time() - 1.5
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    assert "old" not in ocisbx(yard, "logs", "--since", stamp, container_id).stdout
    for wrong in ("", "soon", "-5m", "10x"):
        assert ocisbx(yard, "logs", "--since", wrong, container_id).returncode == 125, wrong
    assert ocisbx(yard, "logs", "--tail", "-1", container_id).returncode == 125


def test_a_turn_is_waited_for_by_the_caller(yard: Box) -> None:
    capped = ("run", "-d", "--max-sandboxes", "1")
    first = ocisbx(yard, *capped, "--", "sleep", "60").stdout.strip()
    refused = ocisbx(yard, *capped, "--wait", "0", "--", "true")
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "no slot is free" in refused.stderr
    given_up = start(yard, *capped, "--", "true")
    assert given_up.stderr is not None
    assert "waiting for a slot" in given_up.stderr.readline()
    given_up.send_signal(signal.SIGINT)
    assert given_up.wait(20) == 130
    given_up.communicate()
    assert eventually(lambda: [one.id for one in Container.all()] == [first])
    patient = start(yard, *capped, "--name", "second", "--", "true")
    time.sleep(1)
    Container.find(first).kill()
    out, _ = patient.communicate(timeout=20)
    assert out.strip() == Container.find("second").id


def test_the_foreground_of_others_is_told_apart(yard: Box) -> None:
    with yard.sandbox().start(["sleep", "60"], name="front") as running:
        for verb in ("stop", "wait", "logs", "rm", "start", "attach", "kill"):
            done = ocisbx(yard, verb, "front")
            assert done.returncode == 125
            assert f"remedy: kill {os.getpid()} ends it" in done.stderr, verb
        (row,) = json.loads(ocisbx(yard, "ps", "--json").stdout)
        assert (row["id"], row["state"], row["background"]) == (running.id, "running", False)


def called_by_a_shell(yard: Box, *words: str) -> subprocess.Popen[bytes]:
    """A shell that runs one command line of ocisbx, and goes on."""
    script = f"{shlex.join([*OCISBX, *words])}; exec sleep 60"
    return subprocess.Popen(
        ["sh", "-c", script],
        cwd=yard.workspace,
        env=environment(yard),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def test_a_foreground_run_ends_with_its_parent(yard: Box) -> None:
    words = ("run", "--die-with-parent", "--", "sh", "-c", "echo up; sleep 60")
    with called_by_a_shell(yard, *words) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
    assert eventually(lambda: yard.left() == [])


def test_a_background_run_ends_with_its_parent_where_told(yard: Box) -> None:
    words = ("run", "-d", "--die-with-parent", "--name", "tied", "--", "sleep", "60")
    with called_by_a_shell(yard, *words) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()
        assert Container.find("tied").state is State.RUNNING
        parent.kill()
    assert ocisbx(yard, "wait", "tied").returncode == 130
