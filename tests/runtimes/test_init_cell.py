"""The cell: private namespaces round a runtime, nothing of the host altered."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
from pathlib import Path

import pytest

from ocisbx.init import cell_path

pytestmark = pytest.mark.runtime

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
USAGE = (
    "ocisbx-cell: usage: ocisbx-cell [-u | -j PID] [-m] [-s] [-g DIR] [-C DIR] [-k] -- "
    "/ABS/RUNTIME [ARG...] | -l PID | -w DEST\n"
)
# Where cgroup2 is mounted already, what is there is used.
HYBRID = Path("/sys/fs/cgroup/unified/cgroup.controllers").exists()
KINDS = ("user", "mnt", "cgroup", "net", "pid")


def _cell(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [cell_path(), *arguments]
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        command, capture_output=True, text=True, timeout=20, check=False, **options
    )


def _namespaces(output: str) -> set[str]:
    here = {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in KINDS}
    there = dict(zip(KINDS, output.split(), strict=True))
    return {kind for kind in KINDS if here[kind] != there[kind]}


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ((), set()),
        (("-u",), {"user"}),
        (("-u", "-m"), {"user", "mnt"} if HYBRID else {"user", "mnt", "cgroup"}),
    ],
)
def test_the_flags_say_which_namespaces_are_new(flags: tuple[str, ...], changed: set[str]) -> None:
    script = "readlink " + " ".join(f"/proc/self/ns/{kind}" for kind in KINDS)
    done = _cell(*flags, "--", "/bin/sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert _namespaces(done.stdout) == changed


def test_the_callers_ids_are_0_inside() -> None:
    script = "id -u; id -g; cat /proc/self/setgroups /proc/self/uid_map /proc/self/gid_map"
    lines = _cell("-u", "--", "/bin/sh", "-c", script).stdout.splitlines()
    ids = [["0", str(os.geteuid()), "1"], ["0", str(os.getegid()), "1"]]
    assert lines[:3] == ["0", "0", "deny"]
    assert [line.split() for line in lines[3:]] == ids


def test_cgroup2_is_where_runtimes_look_and_only_there() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    done = _cell("-u", "-m", "--", "/bin/cat", "/proc/self/mountinfo")
    mounts = [line.split() for line in done.stdout.splitlines()]
    [kind] = [fields[fields.index("-") + 1] for fields in mounts if fields[4] == "/sys/fs/cgroup"][
        -1:
    ]
    assert kind == "cgroup2"
    assert not [fields for fields in mounts if any("shared:" in one for one in fields)]
    assert Path("/proc/self/mountinfo").read_text() == before


def test_it_starts_where_it_is_told_to(tmp_path: Path) -> None:
    done = _cell("-u", "-m", "-C", str(tmp_path), "--", "/bin/pwd")
    assert (done.stdout, done.returncode) == (f"{tmp_path}\n", 0)


@pytest.mark.parametrize(("flags", "kept"), [((), []), (("-k",), ["3"])])
def test_only_the_report_descriptor_is_kept(flags: tuple[str, ...], kept: list[str]) -> None:
    fds = [os.open("/", os.O_RDONLY) for _ in range(30)]
    try:
        for fd in fds:
            os.dup2(fd, fd + 500, inheritable=True)
        script = "exec 9</proc/self/fd && ls /proc/self/fd"
        command = [cell_path(), *flags, "--", "/bin/sh", "-c", script]
        read, write = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, fds[0], 3)]
        pid = os.posix_spawn(command[0], command, {}, file_actions=actions)
        os.close(write)
        with os.fdopen(read) as output:
            listed = set(output.read().split())
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        for fd in fds:
            os.close(fd)
            os.close(fd + 500)
    # 9 is the shell's own; ls has its directory open on the first free number
    assert sorted(listed - {"0", "1", "2", "9"})[:2] == (["3", "4"] if kept else ["3"])


def test_a_runtime_in_a_sealed_memfd_can_be_executed() -> None:
    fd = os.memfd_create("runtime", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.write(fd, Path("/bin/readlink").read_bytes())
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        done = _cell("-u", "-m", "--", f"/proc/self/fd/{fd}", "/proc/self/exe", pass_fds=(fd,))
    finally:
        os.close(fd)
    assert done.stdout.startswith("/memfd:runtime")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--", "/no/such"), "ocisbx-cell: /no/such: no such file or directory (errno 2)\n"),
        (("-u", "-m", "--", "/etc"), "ocisbx-cell: /etc: permission denied (errno 13)\n"),
        *(
            (arguments, USAGE)
            for arguments in ((), ("-u",), ("--",), ("-x", "--", "/bin/true"), ("--", "true"))
        ),
        *((("-u", option), USAGE) for option in ("-j", "-g", "-C", "-l", "-w")),
        (
            ("-C", "/no", "--", "/bin/true"),
            "ocisbx-cell: /no: no such file or directory (errno 2)\n",
        ),
    ],
)
def test_a_failure_is_one_line_and_125(arguments: tuple[str, ...], line: str) -> None:
    done = _cell(*arguments)
    assert (done.stdout, done.stderr, done.returncode) == ("", line, 125)


def _ordered(order: bytes, *descriptors: int) -> tuple[int, bytes]:
    """The exit code of a cell that was given this order for our own container, and what it said."""
    ours, theirs = socket.socketpair()
    own = os.pidfd_open(os.getpid())
    try:
        pid = os.posix_spawn(
            cell_path(),
            ["cell", "-w", "/mnt"],
            {},
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, theirs.fileno(), number) for number in (0, 2)),
                (os.POSIX_SPAWN_DUP2, own, 3),
            ],
        )
        theirs.close()
        if order:
            socket.send_fds(ours, [order], descriptors)
        ours.shutdown(socket.SHUT_WR)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code, ours.recv(4096)
    finally:
        ours.close()
        os.close(own)


def test_who_is_given_no_workspace_mounts_none() -> None:
    assert _ordered(b"") == (0, b"")
    wrong = b"ocisbx-cell: an order without its directory\n"
    assert _ordered(b"w") == (125, wrong)
    # Nobody may enter the user namespace that he is in already (setns(2)).
    root = os.open("/", os.O_PATH)
    try:
        code, said = _ordered(b"w", root)
    finally:
        os.close(root)
    assert (code, said[:36]) == (125, b"ocisbx-cell: entering the container:")


def test_the_environment_is_passed_on_unchanged() -> None:
    done = _cell("-u", "--", "/usr/bin/env", env={"A": "1", "B": "x=y"})
    assert done.stdout.splitlines() == ["A=1", "B=x=y"]
