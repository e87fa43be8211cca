"""The guests are what the other tests here take for granted."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from shutil import which
from typing import NamedTuple

import pytest

from ocisbx.probe.runtimes import find_runtimes

pytestmark = pytest.mark.every_guest

ROOT = Path(__file__).resolve().parents[2]


class Release(NamedTuple):
    """What the other tests' measurements were made on, by the beginning of each version."""

    kernel: str
    systemd: str
    crun: str
    runc: str


RELEASES = {
    "bookworm": Release(kernel="6.1.", systemd="252", crun="1.8.1", runc="1.1.5"),
    "trixie": Release(kernel="6.12.", systemd="257", crun="1.21", runc="1.1.15"),
}
OURS = {"crun": "1.28", "runc": "1.5."}
CONTROLLERS = {"cpu", "cpuset", "io", "memory", "pids"}
MOUNT = Path("/sys/fs/cgroup")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def version_of(path: str) -> str:
    """As its first line tells: `crun version 1.28`."""
    return output(path, "--version").split()[2]


def own_cgroup() -> Path:
    (line,) = Path("/proc/self/cgroup").read_text().splitlines()
    return MOUNT / line.removeprefix("0::/")


def test_the_versions_are_those_of_the_release() -> None:
    (codename,) = re.findall(
        r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE
    )
    release = RELEASES[codename]
    assert platform.release().startswith(release.kernel)
    assert output("systemctl", "--version").split()[:2] == ["systemd", release.systemd]
    for name in ("crun", "runc"):
        path = which(name, path="/usr/bin:/usr/sbin")
        assert path is not None
        assert version_of(path).startswith(getattr(release, name))


@pytest.mark.parametrize("name", OURS)
def test_our_builds_are_the_new_ones(name: str) -> None:
    assert version_of(str(ROOT / ".runtimes" / "bin" / name)).startswith(OURS[name])


def test_all_units_are_up() -> None:
    assert output("systemctl", "is-system-running") == "running"
    assert output("systemctl", "--user", "is-system-running") == "running"


def test_we_are_an_unprivileged_user_in_a_delegated_scope() -> None:
    own = own_cgroup()
    assert os.geteuid() != 0
    assert own.suffix == ".scope"
    assert own.stat().st_uid == own.parent.stat().st_uid == os.geteuid()
    controllers = set((own / "cgroup.controllers").read_text().split())
    assert controllers >= CONTROLLERS


@pytest.mark.parametrize("name", ["crun", "runc", "runsc", "youki"])
def test_each_runtime_is_there_as_we_build_it_and_as_the_distribution_has_it(name: str) -> None:
    ours = ROOT / ".runtimes" / "bin" / name
    assert output(str(ours), "--version").startswith(name)
    theirs = which(name, path="/usr/bin:/usr/sbin")
    if theirs is None:
        assert name == "youki"
    else:
        assert output(theirs, "--version") != output(str(ours), "--version")
        assert Path(theirs).resolve() in {Path(one.path).resolve() for one in find_runtimes()}


@pytest.mark.parametrize("where", ["dev@localhost", "root@localhost"])
def test_ssh_leads_to_a_session(where: str) -> None:
    key = Path.home() / ".ssh" / "id_ed25519"
    cgroup = output("ssh", "-o", "BatchMode=yes", "-i", str(key), where, "cat /proc/self/cgroup")
    assert re.search(r"/session-\w+\.scope$", cgroup)
