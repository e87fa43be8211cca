"""What /proc says about a container: parsers, on files as the kernel writes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.probe import container as probe
from ocisbx.probe.processes import command_line

if TYPE_CHECKING:
    from pathlib import Path

STATUS = """\
Name:\tsh
State:\t{state}
Uid:\t1001\t1001\t1001\t1001
Gid:\t1001\t1001\t1001\t1001
Groups:\t{groups}
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t{bounding:016x}
CapAmb:\t0000000000000000
NoNewPrivs:\t{nnp}
Seccomp:\t{seccomp}
"""
MOUNTINFO = """\
87 64 254:0 /usr /usr ro,nosuid,nodev,relatime - ext4 /dev/vda rw
88 64 0:41 / /dev rw,nosuid,noexec,relatime shared:3 master:1 - tmpfs tmpfs rw,size=64k,mode=755
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max core file size        0                    0                    bytes     
Max open files            1024                 unlimited            files     
Max nice priority         0                    0                    
Max something new         7                    7                    things    
"""  # noqa: W291 -- as the kernel writes it
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo:       0       0    0    0    0     0          0         0        0
  eth0:      42       1    0    0    0     0          0         0        0
"""


def status(**changes: object) -> str:
    told: dict[str, object] = {
        "state": "S (sleeping)", "groups": "1001 ", "bounding": 0, "nnp": 1, "seccomp": 2,
    }  # fmt: skip
    return STATUS.format(**(told | changes))


class Proc:
    """A /proc of files: processes with their namespaces, descriptors and children."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int | str, links: dict[str, int], **files: str) -> None:
        process = self.root / str(pid)
        for folder in ("ns", "fd", "fdinfo", f"task/{pid}", "net", "attr"):
            (process / folder).mkdir(parents=True, exist_ok=True)
        for name, number in links.items():
            (process / "ns" / name).symlink_to(f"{name}:[{number}]")
        for name, text in files.items():
            (process / name.replace("__", "/").replace("TASK", f"task/{pid}")).write_text(text)

    def open(self, pid: int, number: int, target: str, mount: int) -> None:
        (self.root / str(pid) / "fd" / str(number)).symlink_to(target)
        (self.root / str(pid) / "fdinfo" / str(number)).write_text(f"pos:\t0\nmnt_id:\t{mount}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    host = {"user": 1, "mnt": 1, "pid": 1, "net": 1, "ipc": 1, "uts": 1, "cgroup": 1}
    made.add("self", host, mountinfo="1 0 254:0 / / rw - ext4 /dev/vda rw\n")
    made.add(5, host | {"net": 7}, cgroup="0::/user\n")
    made.add(
        10,
        {"user": 2, "mnt": 2, "pid": 2, "net": 7, "ipc": 1, "uts": 2},
        status=status(),
        uid_map="         0       1001          1\n",
        gid_map="         0       1001          1\n",
        mountinfo=MOUNTINFO,
        limits=LIMITS,
        net__dev=NET_DEV,
        cgroup="0::/user\n",
        attr__current="unconfined\n\0",
        oom_score_adj="0\n",
        TASK__children="11 12 ",
    )
    made.add(11, {"user": 2}, status=status(groups="1001 27 "))
    made.open(11, 0, "/dev/null", 1)
    made.open(11, 1, "pipe:[77]", 15)
    made.open(11, 3, "/usr/bin/make", 87)
    made.open(11, 4, "/etc", 1)
    made.open(11, 5, "/memfd:x (deleted)", 1)
    return made


def test_a_whole_container(proc: Proc) -> None:
    paths = ["/proc/5", "/proc/no-such"]
    seen = probe.read_container(10, driver=5, paths=paths, proc=str(proc.root))
    assert seen is not None
    assert (seen.init, seen.payload) == (10, 11)
    assert seen.namespaces == {
        "user": True, "mount": True, "pid": True, "network": False, "ipc": False, "uts": True,
    }  # fmt: skip
    assert seen.uid_map == (probe.IdRow(0, 1001, 1),)
    assert seen.interfaces == ("lo", "eth0")
    assert seen.cgroup_limits == {}
    assert seen.security_label == "unconfined"
    assert seen.oom_score_adj == 0
    assert seen.foreign_files == ("4 -> /etc",)
    assert seen.existing == {"/proc/5"}
    assert [mount.point for mount in seen.host_mounts] == ["/"]


def test_what_cannot_be_read_is_none(proc: Proc) -> None:
    proc.add(20, {}, status=status())
    seen = probe.read_container(20, driver=999, proc=str(proc.root))
    assert seen is not None
    assert seen.payload is None
    assert seen.namespaces == {}
    for name in ("uid_map", "gid_map", "mounts", "foreign_files", "rlimits", "interfaces",
                 "cgroup_limits", "security_label", "oom_score_adj"):  # fmt: skip
        assert getattr(seen, name) is None, name


@pytest.mark.parametrize("state", ["Z (zombie)", "X (dead)"])
def test_the_dead_tell_nothing(proc: Proc, state: str) -> None:
    proc.add(30, {}, status=status(state=state))
    assert probe.read_container(30, driver=5, proc=str(proc.root)) is None
    assert probe.read_container(31, driver=5, proc=str(proc.root)) is None


def test_the_payload_counts_where_it_is_weaker(proc: Proc) -> None:
    (proc.root / "11" / "status").write_text(status(nnp=0, seccomp=0, bounding=1 << 21))
    seen = probe.read_container(10, driver=5, proc=str(proc.root))
    assert seen is not None
    assert seen.status is not None
    assert (seen.status.no_new_privileges, seen.status.seccomp) == (False, 0)
    assert seen.status.capabilities == 1 << 21


def test_a_user_namespace_of_the_payload_s_own_says_nothing(proc: Proc) -> None:
    (proc.root / "11" / "ns" / "user").unlink()
    (proc.root / "11" / "ns" / "user").symlink_to("user:[99]")
    (proc.root / "11" / "status").write_text(status(bounding=(1 << 41) - 1))
    seen = probe.read_container(10, driver=5, proc=str(proc.root))
    assert seen is not None
    assert seen.status is not None
    assert seen.status.capabilities == 0


def test_status(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_text(status(bounding=0b101) + "Seccomp_filters:\t3\n")
    assert probe.read_status(str(path)) == probe.Status(
        uids=(1001,) * 4,
        gids=(1001,) * 4,
        groups=(1001,),
        capabilities=0b101,
        no_new_privileges=True,
        seccomp=2,
        filters=3,
    )


def test_mountinfo(tmp_path: Path) -> None:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTINFO)
    usr, dev = probe.read_mounts(str(path)) or ()
    assert (usr.id, usr.device, usr.root, usr.point, usr.type) == (
        87,
        "254:0",
        "/usr",
        "/usr",
        "ext4",
    )
    assert usr.options == {"ro", "nosuid", "nodev", "relatime"}
    assert (usr.propagation, dev.propagation) == ((), ("shared:3", "master:1"))
    assert "size=64k" in dev.super_options


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_any_mount_point_comes_back(name: str) -> None:
    point = "/" + name
    written = point
    for character in "\\ \t\n":
        written = written.replace(character, f"\\{ord(character):03o}")
    line = f"1 2 0:1 {written} {written} rw - tmpfs x rw"
    mount = probe._mount(line)
    assert (mount.point, mount.root) == (point, point)


@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), max_size=8))
def test_any_id_map_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("map") / "uid_map"
    path.write_text("".join(f"{a:10} {b:10} {c:10}\n" for a, b, c in rows))
    assert probe.read_id_map(str(path)) == tuple(probe.IdRow(*row) for row in rows)


def test_rlimits(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    path.write_text(LIMITS)
    assert probe.read_rlimits(str(path)) == {
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_NOFILE": (1024, probe.UNLIMITED),
        "RLIMIT_NICE": (0, 0),
    }


def test_the_kernel_s_own_words_for_limits() -> None:
    found = probe.read_rlimits("/proc/self/limits")
    assert found is not None
    assert set(found) == set(probe.RLIMIT_WORDS.values())


HELD = {"memory": 1048576, "swap": None, "cpus": 1.5, "pids": 64}


@pytest.mark.parametrize(
    ("own", "driver", "expected"),
    [
        (None, "0::/a\n", None),
        ("0::/a\n", None, None),
        ("0::/a\n", "0::/a\n", {}),
        ("", "0::/a\n", {}),
        ("4:memory:/x\n0::/box\n", "0::/a\n", None),
        ("9:name=systemd:/\n0::/a\n", "0::/a\n", {}),
        ("0::/gone\n", "0::/a\n", None),
        ("0::/box\n", "0::/a\n", HELD),
        ("0::/box/c\n", "0::/a\n", HELD | {"pids": 32}),
        ("0::/box/c\n", "0::/box/driver\n", {"memory": None, "pids": 32}),
        ("0::/box/c\n", "0::/box\n", {"memory": None, "pids": 32}),
        ("0::/box/c\n", "0::/bo\n", HELD | {"pids": 32}),
        ("0::/box/c/d\n", "0::/\n", HELD | {"pids": 32}),
    ],
)
def test_cgroup_limits(
    tmp_path: Path, own: str | None, driver: str | None, expected: dict[str, float | None] | None
) -> None:
    box = tmp_path / "box"
    (box / "c" / "d").mkdir(parents=True)
    (box / "c" / "memory.max").write_text("max\n")
    (box / "c" / "pids.max").write_text("32\n")
    texts = {"memory.max": "1048576", "memory.swap.max": "max", "cpu.max": "150000 100000"}
    for name, text in (texts | {"pids.max": "64"}).items():
        (box / name).write_text(f"{text}\n")
    assert probe.read_cgroup_limits(own, driver, [str(tmp_path)]) == expected


def test_a_process_is_known_by_its_program() -> None:
    program = command_line(os.getpid())[0].decode()
    assert probe.is_init(os.getpid(), program)
    assert not probe.is_init(os.getpid(), "/.ocisbx/init")
