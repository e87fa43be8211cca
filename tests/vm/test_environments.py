"""Each environment for real, inside the test machine: what is seen of it, and what cures it.

Runs as the guest's unprivileged user, in a delegated scope; sudo is its administrator. The remedies
are pasted into a shell as they are printed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside_environment.py")
IN_GUEST = Path("/opt/ocisbx-vm").is_dir()

pytestmark = [
    pytest.mark.vm,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not IN_GUEST, reason="runs inside the test machine: tools/vm"),
]

# A user who never logged in and does not linger: no user manager runs.
OTHER = "other"
PYTHON = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={ROOT} python3 -P"
LOOK = f"{PYTHON} {INSIDE}"
RUN = f"{PYTHON} -m ocisbx run --workspace none -m 96M --json -- true"
DOCTOR = f"{PYTHON} -m ocisbx doctor --json"
ALL = ["cpu", "cpuset", "io", "memory", "pids"]

USER_RUN = ("systemd-run", "--user", "--quiet")
SYSTEM_RUN = ("sudo", "systemd-run", "--quiet", "--pipe", "--wait", "--collect")


def su(user: str, line: str) -> str:
    return f"su {user} -c {shlex.quote(line)}"


# How a shell line is started in each environment.
ENTER: dict[str, Callable[[str], list[str]]] = {
    "scope": lambda line: [*USER_RUN, "--scope", "-pDelegate=yes", "sh", "-c", line],
    "undelegated scope": lambda line: [*USER_RUN, "--scope", "sh", "-c", line],
    "user service": lambda line: [*USER_RUN, "--pipe", "--wait", "sh", "-c", line],
    "ssh": lambda line: ["ssh", "dev@localhost", line],
    "service": lambda line: [*SYSTEM_RUN, "--uid=dev", "sh", "-c", line],
    "delegated service": lambda line: [
        *SYSTEM_RUN, "--uid=dev", "-pDelegate=yes", "sh", "-c", line
    ],
    "service without manager": lambda line: [*SYSTEM_RUN, f"--uid={OTHER}", "sh", "-c", line],
    "su": lambda line: ["ssh", "dev@localhost", f"sudo {su(OTHER, line)}"],
    "su to who lingers": lambda line: ["ssh", "root@localhost", su("dev", line)],
    "root by ssh": lambda line: ["ssh", "root@localhost", line],
    "root's service": lambda line: [*SYSTEM_RUN, "sh", "-c", line],
}  # fmt: skip


def output(argv: list[str], timeout_s: float = 120) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def sudo(line: str) -> str:
    return output(["sudo", "sh", "-c", line])


def under_cron(user: str, line: str, place: Path) -> str:
    """As a job of cron(8): one of @reboot starts when cron first does, not with the minute."""
    result = place / "result"
    job = f"@reboot {user} {{ {line}; }} >{place}/text 2>&1; mv {place}/text {result}"
    place.chmod(0o777)
    sudo(f"rm -f /run/crond.reboot; echo {shlex.quote(job)} >/etc/cron.d/ocisbx-test; "
         "systemctl restart cron")  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not result.exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return result.read_text(encoding="utf-8")
    finally:
        sudo("rm /etc/cron.d/ocisbx-test")


def seen_in(name: str, lines: str = LOOK) -> dict[str, Any]:
    """What the last of the lines prints; from a file, as systemd-run(1) changes words with $."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".sh") as script:
        script.write(lines)
        script.flush()
        Path(script.name).chmod(0o644)
        found: dict[str, Any] = json.loads(
            output(ENTER[name](f"sh {script.name}")).splitlines()[-1]
        )
    return found


@pytest.fixture(scope="module", autouse=True)
def guest() -> Iterator[None]:
    """Another user, who may ask the administrator too, and can read this tree."""
    sudo(f"id {OTHER} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {OTHER}; "
         f"echo '{OTHER} ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/ocisbx-{OTHER}; "
         "chmod a+x /home/dev")  # fmt: skip
    yield
    forget_other()


def forget_other() -> None:
    """Until nothing of the other user runs, and no user manager."""
    sudo(
        f"loginctl disable-linger {OTHER}; loginctl terminate-user {OTHER} 2>/dev/null; "
        f"while systemctl is-active --quiet user@$(id -u {OTHER}); do sleep 0.2; done"
    )


def start_manager() -> tuple[str, str]:
    """The other user's id, and the process id of the user manager that now lingers."""
    uid = sudo(f"loginctl enable-linger {OTHER}; id -u {OTHER}").strip()
    sudo(f"while ! test -S /run/user/{uid}/bus; do sleep 0.2; done")
    return uid, sudo(f"systemctl show --value --property MainPID user@{uid}").strip()


def assert_held(told: dict[str, Any], controllers: list[str]) -> None:
    used = told["used"]
    assert "error" not in used, used
    assert used["limit"] == 64 << 20
    assert used["inside"].startswith(used["parent"] + "/ocisbx-test-")
    assert set(controllers) <= set(used["controllers"])
    assert used["same"]


# Name of the environment -> the scene, the way at first, the way once settled.
HELD = [
    ("scope", "delegated", "sibling", "sibling"),
    ("undelegated scope", "undelegated", "scope", "sibling"),
    ("user service", "undelegated", "scope", "sibling"),
    ("ssh", "session", "scope", "sibling"),
    ("service", "service", "scope", "sibling"),
    ("delegated service", "handed-over", "below", "below"),
    ("su to who lingers", "su-lingering", "scope", "sibling"),
    ("root by ssh", "root", "sibling", "sibling"),
    ("root's service", "root", "sibling", "sibling"),
]


@pytest.mark.parametrize(("name", "scene", "way", "settled"), HELD)
def test_limits_hold(name: str, scene: str, way: str, settled: str) -> None:
    told = seen_in(name)
    assert (told["scene"], told["cgroups"]["way"], told["remedy"]) == (scene, way, "")
    assert told["used"]["way"] == settled
    assert_held(told, ALL)
    if way == "scope":
        own = told["used"]["own"]
        assert "/user@1000.service/app.slice/ocisbx-" in own
        assert own.endswith(".scope")
        # With the last process in it, the scope is gone.
        assert not Path(f"/sys/fs/cgroup{own}").exists()
    if way == "below":
        assert told["used"]["own"].endswith(".service/ocisbx-driver")


def test_cron_of_who_lingers(tmp_path: Path) -> None:
    told = json.loads(under_cron("dev", LOOK, tmp_path))
    assert told["cgroups"]["own"] == "/system.slice/cron.service"
    assert (told["scene"], told["cgroups"]["way"]) == ("service", "scope")
    assert_held(told, ALL)


LOST = [("service without manager", "no-manager"), ("su", "su")]


@pytest.mark.parametrize(("name", "scene"), LOST)
def test_a_remedy_pasted_works(name: str, scene: str) -> None:
    forget_other()
    told = seen_in(name)
    assert (told["scene"], told["cgroups"]["way"]) == (scene, "none")
    assert "no cgroup can be made here" in told["used"]["error"]
    remedy = told["remedy"]
    assert "sudo loginctl enable-linger" in remedy
    after = seen_in(name, f"{remedy}\n{LOOK}")
    assert after["cgroups"]["way"] == "scope"
    assert after["remedy"] == ""
    assert_held(after, ALL)


def test_cron_of_who_does_not_linger(tmp_path: Path) -> None:
    forget_other()
    (tmp_path / "first").mkdir()
    (tmp_path / "then").mkdir()
    tmp_path.chmod(0o755)
    for above in list(tmp_path.parents)[:-2]:
        if above.owner() == "dev":
            above.chmod(0o755)
    told = json.loads(under_cron(OTHER, LOOK, tmp_path / "first"))
    assert (told["scene"], told["cgroups"]["way"]) == ("no-manager", "none")
    lines = (line.partition("  #")[0] for line in told["remedy"].splitlines())
    after = json.loads(under_cron(OTHER, f"{{ {'; '.join(lines)}; }}; {LOOK}", tmp_path / "then"))
    assert (after["scene"], after["cgroups"]["way"]) == ("service", "scope")
    assert_held(after, ALL)


def test_without_systemd_a_cgroup_is_handed_over_by_hand() -> None:
    """The remedy of a host without systemd, which works on one with it just as well."""
    forget_other()
    pretending = f"PRETEND='{{\"systemd\": false}}' {LOOK}"
    told = seen_in("service without manager", pretending)
    assert told["scene"] == "no-systemd"
    after = seen_in("service without manager", f"{told['remedy']}\n{LOOK}")
    assert (after["scene"], after["cgroups"]["way"]) == ("handed-over", "sibling")
    assert_held(after, ALL)
    sudo("cd /sys/fs/cgroup && rmdir user-*/shell user-*[0-9]")


def test_a_bus_is_not_needed_where_the_manager_itself_answers() -> None:
    """As without Debian's dbus-user-session."""
    forget_other()
    uid, _ = start_manager()
    sudo(f"rm /run/user/{uid}/bus")
    told = seen_in("service without manager")
    assert told["cgroups"]["user_bus"] == f"/run/user/{uid}/systemd/private"
    assert_held(told, ALL)


@pytest.mark.parametrize("dies", [False, True])
def test_a_manager_that_does_not_answer(dies: bool) -> None:  # noqa: FBT001 -- a table's column
    forget_other()
    _, pid = start_manager()
    sudo(f"kill -STOP {pid}")
    killed = f"KILL={pid} " if dies else ""
    try:
        told = seen_in("service without manager", killed + LOOK)
    finally:
        sudo(f"kill -CONT {pid} 2>/dev/null || true")
    assert told["cgroups"]["way"] == "scope"
    error = told["used"]["error"]
    assert "the systemd user manager gave us no cgroup of our own" in error
    assert dies or "no answer within 5 s" in error
    assert "remedy: " in error


def test_the_managers_own_controllers_are_extended() -> None:
    """Debian's user@.service hands out no cpuset and io; the guest's drop-in does."""
    forget_other()
    sudo("mv /etc/systemd/system/user@.service.d/delegate.conf /tmp; systemctl daemon-reload")
    uid, _ = start_manager()
    told = seen_in("service without manager", f"{LOOK} io")
    assert (told["scene"], told["cgroups"]["way"]) == ("few-controllers", "scope")
    assert_held(told, ["cpu", "memory", "pids"])
    assert "io" not in told["used"]["controllers"]
    again = f"{told['remedy']}\nsudo systemctl restart user@{uid}\n"
    after = seen_in("service without manager", f"{again}{LOOK} io")
    assert (after["scene"], after["remedy"]) == ("service", "")
    assert_held(after, ALL)
