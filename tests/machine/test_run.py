"""tools/vm run: what goes in, what comes out, and that each run has a machine of its own."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tools.vm_recipe import GUESTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.machine.conftest import Vm

CONTEXTS = ("scope", "session", "login", "plain")

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]


@pytest.mark.parametrize("suite", GUESTS)
def test_streams_status_and_files_come_back(vm: Vm, tmp_path: Path, suite: str) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "text").write_text("copied\n")
    script = 'pwd; cat sub/text -; echo not out >&2; mkdir "$OUT/a"; echo made >"$OUT/a/b"; exit 7'
    ended = vm.sh(script, "-g", suite, "-p", f"{tree}:/home/dev/tree", given="given\n")
    assert (ended.returncode, ended.stdout) == (7, "/home/dev/tree\ncopied\ngiven\n")
    assert ended.stderr == "not out\n"
    assert (vm.out / "a" / "b").read_text() == "made\n"


def test_streams_of_many_bytes_arrive_whole(vm: Vm) -> None:
    given = "".join(f"{number}\n" for number in range(400_000))
    digest = hashlib.sha256(given.encode()).hexdigest()
    ended = vm.sh("tee /dev/stderr | sha256sum", given=given)
    assert ended.returncode == 0
    assert ended.stdout.split()[0] == digest
    assert ended.stderr == given


def test_nothing_is_brought_out_where_nothing_was_written(vm: Vm) -> None:
    assert vm.sh("test -d $OUT").returncode == 0
    assert not vm.out.exists()


@pytest.mark.parametrize(
    ("context", "cgroup"),
    [
        ("scope", r"/user\.slice/user-1000\.slice/user@1000\.service/app\.slice/run-[\w-]+\.scope"),
        ("session", r"/user\.slice/user-1000\.slice/session-\w+\.scope"),
        ("login", r"/user\.slice/user-1000\.slice/session-\w+\.scope"),
        ("plain", r"/system\.slice/command\.service"),
    ],
)
def test_each_context_has_its_cgroup_and_keeps_the_words(vm: Vm, context: str, cgroup: str) -> None:
    words = ["it's", "$HOME %n", "two\nlines", ""]
    script = 'cut -d: -f3 /proc/self/cgroup; id -un; printf "<%s>" "$@"; exit 3'
    ended = vm("run", "-s", context, "--", "sh", "-c", script, "sh", *words)
    first, user, rest = ended.stdout.split("\n", 2)
    assert re.fullmatch(cgroup, first), ended
    assert (user, rest, ended.returncode) == ("dev", "".join(f"<{one}>" for one in words), 3)


def test_another_user(vm: Vm) -> None:
    ended = vm("run", "-u", "root", "-s", "plain", "--", "sh", "-c", "id -un; pwd")
    assert (ended.stdout, ended.returncode) == ("root\n/root\n", 0), ended.stderr
    ended = vm("run", "-u", "nosuchuser", "-s", "plain", "--", "true")
    assert ended.returncode != 0
    assert "nosuchuser" in ended.stderr


def test_status_tells_what_is_built_and_how_large_it_is(vm: Vm) -> None:
    assert vm("build").returncode == 0
    lines = vm("status").stdout.splitlines()
    assert [line.split(" (")[0] for line in lines[: len(GUESTS)]] == [f"{s}: ready" for s in GUESTS]
    assert all(re.fullmatch(r" +\d+ MB  /.+", line) for line in lines[len(GUESTS) :])


def test_what_the_system_lacks_is_asked_for(vm: Vm, tmp_path: Path) -> None:
    """With what there is but QEMU: as a user it ends with the command for an administrator."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in os.listdir("/usr/bin"):
        if not name.startswith("qemu"):
            (programs / name).symlink_to(f"/usr/bin/{name}")
    poor = replace(vm, environment={"PATH": str(programs)})
    needs = poor("--needs")
    assert (needs.returncode, needs.stdout) == (0, "qemu-system-x86\n"), needs
    ended = poor("run", "--", "true")
    assert ended.returncode == 69
    assert "qemu-system-x86" in ended.stderr
    assert "apt-get install" in ended.stderr


@pytest.mark.parametrize("context", ["scope", "login", "plain"])
def test_a_signal_reaches_the_command(vm: Vm, context: str) -> None:
    script = "trap 'echo ended; exit 9' TERM; echo begun; while :; do sleep 0.1; done"
    with vm.start("run", "-s", context, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert (out, process.returncode) == ("ended\n", 9)


@pytest.mark.parametrize("context", CONTEXTS)
def test_death_by_a_signal_and_a_command_that_is_not_there_have_their_codes(
    vm: Vm, context: str
) -> None:
    assert vm.sh("kill -KILL $$", "-s", context).returncode == 128 + signal.SIGKILL
    ended = vm("run", "-s", context, "--", "no-such-command")
    assert ended.returncode == 127
    assert re.search("no-such-command.*: No such file or directory", ended.stderr)


def test_a_killed_host_leaves_no_machine(vm: Vm) -> None:
    with vm.start("run", "-s", "plain", "--", "sh", "-c", "echo begun; sleep 600") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        (machine,) = children(process.pid)
        process.kill()
    end = time.monotonic() + 10
    while (is_there := os.path.exists(f"/proc/{machine}")) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_there


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(one) for one in file.read().split()]


def test_two_machines_at_once_share_neither_files_nor_chance_and_know_the_time(vm: Vm) -> None:
    script = (
        "cat; touch /tmp/mine; ls /tmp | grep -c mine; date +%s; cat /proc/sys/kernel/random/uuid"
    )
    command = ("run", "-s", "plain", "--", "sh", "-c", script)
    before = int(time.time())
    with vm.start(*command) as one, vm.start(*command) as other:
        # Neither ends before both have been started.
        ends = [process.communicate("given\n") for process in (one, other)]
    said = [out.split("\n") for out, _ in ends]
    assert [lines[:2] for lines in said] == [["given", "1"]] * 2, ends
    assert all(before <= int(lines[2]) <= time.time() + 1 for lines in said)
    assert said[0][3] != said[1][3]


@pytest.mark.parametrize("put", ["relative", "/no/such/file:/tmp/x", ":/tmp/x", "/etc:tmp/x"])
def test_what_cannot_be_copied_in_is_said(vm: Vm, put: str) -> None:
    ended = vm.sh("true", "-p", put)
    assert (ended.returncode, ended.stdout) == (125, "")
    assert ended.stderr.startswith(f"vm: -p {put}: ")
