"""What doctor reads of a host: files written here, in the places where a host has them."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.doctor.inventory import describe_order, summarize
from ocisbx.host import Host, RuntimeBinary
from ocisbx.probe.ownership import owned_by, writable_by_others
from ocisbx.probe.packages import closed_holes
from ocisbx.probe.system import (
    directory_trouble,
    distributions,
    helper_trouble,
    no_exec,
    number,
    read_system,
)

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('NAME="Debian GNU/Linux"\nID=debian\n', ("debian",)),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', ("rocky", "rhel", "centos", "fedora")),
        ("ID=ubuntu\nID_LIKE=debian\n", ("ubuntu", "debian")),
        ("# nothing\n", ()),
        ("ID='x\nID_LIKE=../y\n", ()),
    ],
)
def test_distributions(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    assert distributions(str(write(tmp_path / "os-release", text))) == expected


def test_what_is_not_there_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    system = read_system(str(tmp_path))
    assert system.distributions == ()
    assert (system.yama_scope, system.unprivileged_userns_clone) == (None, None)
    assert system.container is None
    assert not system.selinux_enforcing
    assert number(str(write(tmp_path / "n", "not a number"))) is None


def test_a_host_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "run" / "user"
    runtime.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    write(tmp_path / "sys/fs/selinux/enforce", "1")
    write(tmp_path / "proc/sys/kernel/yama/ptrace_scope", "2\n")
    write(tmp_path / "proc/sys/kernel/unprivileged_userns_clone", "0\n")
    write(tmp_path / "run/.containerenv")
    system = read_system(str(tmp_path))
    assert (system.selinux_enforcing, system.yama_scope) == (True, 2)
    assert system.unprivileged_userns_clone == 0
    assert system.container == ("podman", "/run/.containerenv")
    assert (system.xdg_runtime_dir, system.xdg_trouble) == (str(runtime), "")


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    uid = os.geteuid()
    assert directory_trouble(str(tmp_path), uid) == ""
    assert "belongs to uid" in directory_trouble(str(tmp_path), uid + 1)
    assert "not an absolute path" in directory_trouble("run", uid)
    assert "No such file" in directory_trouble(str(tmp_path / "gone"), uid)


def test_no_exec_looks_at_what_exists(tmp_path: Path) -> None:
    assert not no_exec(str(tmp_path / "not" / "yet"))


def test_who_else_can_write(tmp_path: Path) -> None:
    uid, gid = os.geteuid(), os.getegid()
    inner = tmp_path / "bin"
    inner.mkdir(mode=0o755)
    program = write(inner / "runc")
    program.chmod(0o755)
    before = writable_by_others(str(program), uid, gid)
    assert not any(str(tmp_path) in line for line in before)
    program.chmod(0o757)
    assert "runc (-rwxr-xrwx" in writable_by_others(str(program), uid, gid)[0]
    program.chmod(0o775)
    assert writable_by_others(str(program), uid, gid) == before
    program.chmod(0o755)
    inner.chmod(0o777)
    assert "can be written by everybody" in writable_by_others(str(program), uid, gid)[0]
    inner.chmod(0o1777)
    assert writable_by_others(str(program), uid, gid) == before
    (tmp_path / "link").symlink_to(program)
    assert owned_by(str(tmp_path / "link"), uid)
    assert not owned_by(str(tmp_path / "gone"), uid)
    if uid != 0:
        assert "belongs to uid" in writable_by_others(str(program), uid + 1, gid)[0]


def changelog(docs: Path, text: str) -> str:
    folder = docs / "runc"
    folder.mkdir(exist_ok=True)
    (folder / "changelog.Debian.gz").write_bytes(gzip.compress(text.encode()))
    return str(docs)


def test_a_changelog_names_what_was_closed(tmp_path: Path) -> None:
    text = (
        "runc (1.1.5+ds1-1+deb12u1) bookworm-security; urgency=medium\n\n"
        "  * CVE-2024-21626: several container breakouts\n    (re-introduced CVE-2019-19921)\n"
    )
    docs = changelog(tmp_path, text)
    found = closed_holes("runc", "/usr/sbin/runc", "1.1.5+ds1", docs)
    assert found == {"2024-21626", "2019-19921"}
    assert closed_holes("runc", "/usr/local/bin/runc", "1.1.5+ds1", docs) == frozenset()
    assert closed_holes("runc", "/usr/sbin/runc", "1.2.0", docs) == frozenset()
    assert closed_holes("crun", "/usr/bin/crun", "1.1.5+ds1", docs) == frozenset()


def test_a_damaged_changelog_says_nothing(tmp_path: Path) -> None:
    docs = changelog(tmp_path, "runc (1.1.5) x; y\n" * 1000)
    path = tmp_path / "runc" / "changelog.Debian.gz"
    whole = path.read_bytes()
    for damaged in (b"", b"plain", whole[:20], whole[:-9], whole[:12] + b"\xff" * 20 + whole[32:]):
        path.write_bytes(damaged)
        assert closed_holes("runc", "/usr/sbin/runc", "1.1.5", docs) == frozenset()


def test_summary_of_a_features_document() -> None:
    document: dict[str, Any] = {
        "ociVersionMin": "1.0.0",
        "ociVersionMax": "1.3.0",
        "linux": {
            "cgroup": {"v1": True, "v2": True, "systemd": True, "systemdUser": False},
            "seccomp": {"enabled": True},
            "mountExtensions": {"idmap": {"enabled": False}},
        },
    }
    assert summarize(document) == {
        "oci_versions": "1.0.0 to 1.3.0",
        "seccomp": True,
        "idmapped_mounts": False,
        "cgroup_kinds": ["v1", "v2", "systemd"],
    }
    bare = summarize({"ociVersionMin": "1.0.0", "ociVersionMax": "1.1.0"})
    assert (bare["seccomp"], bare["idmapped_mounts"], bare["cgroup_kinds"]) == (None, None, [])
    with pytest.raises(ValueError, match="ociVersionMax"):
        summarize({"ociVersionMin": "1.0.0"})


def test_null_is_not_told() -> None:
    """As youki 0.7 writes what it does not tell."""
    linux = {"seccomp": None, "netDevices": None, "cgroup": {"v1": True, "rdma": None}}
    document = {"ociVersionMin": "1.0.0", "ociVersionMax": "1.1.0", "annotations": None}
    told = summarize({**document, "linux": linux})
    assert (told["seccomp"], told["cgroup_kinds"]) == (None, ["v1"])


def describe(*runtimes: RuntimeBinary) -> dict[str, list[dict[str, str]]]:
    host = Host(machine="m", kernel="6.1", uid=1, gid=1, home="/h", cwd="/", runtimes=runtimes)
    return {name: describe_order(name, host) for name in ("auto", "strongest")}


def test_the_order_of_auto_is_that_of_the_selection() -> None:
    versions = (
        *(("runc", "1.1.5"), ("crun", "1.8.1"), ("crun", "1.28"), ("runc", "1.5.2")),
        *(("runsc", "0.0~20221219.0"), ("runsc", "release-20260907.0")),
    )
    runtimes = tuple(
        RuntimeBinary(name=name, path=f"/{name}-{version}", version=version)
        for name, version in versions
    )
    orders = describe(*runtimes)
    auto = ["/crun-1.28", "/crun-1.8.1", "/runc-1.5.2", "/runc-1.1.5"]
    assert [row["path"] for row in orders["auto"]] == auto
    assert [row["path"] for row in orders["strongest"]] == [
        "/runsc-release-20260907.0",
        "/runsc-0.0~20221219.0",
        *auto,
    ]
    assert orders["auto"][0]["reason"] == "crun 1.28: the fastest to start"
    assert describe() == {"auto": [], "strongest": []}


def test_what_speaks_against_a_runtime_stands_in_the_order() -> None:
    found = RuntimeBinary(name="crun", path="/crun", version="1.28")
    ignoring = found.model_copy(update={"ignores": ("seccomp",)})
    failing = found.model_copy(update={"path": "/b/crun", "trouble": "no room"})
    assert [row["reason"] for row in describe(ignoring, failing)["auto"]] == [
        "crun 1.28: not usable: it ignores seccomp",
        "crun 1.28: not usable: no room",
    ]


def test_helpers_that_gain_no_rights(tmp_path: Path) -> None:
    helper = write(tmp_path / "newuidmap")
    status = write(tmp_path / "proc/self/status", "NoNewPrivs:\t0\n")
    words = helper_trouble(str(helper), str(tmp_path))
    assert words == f"{helper} is neither setuid root nor has it a file capability"
    assert helper_trouble("/usr/bin/su", str(tmp_path)) == ""
    write(status, "Name:\tx\nNoNewPrivs:\t1\n")
    assert "no_new_privs is set" in helper_trouble("/usr/bin/su", str(tmp_path))
