"""Environments of the guest, real ones: what starts a shell's lines in each of them.

The tests run as the guest's unprivileged user, in a delegated scope; sudo is the administrator.
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
# A copy that everybody can read, in no clone whose .runtimes are tried too.
COPY = Path("/opt/ocisbx-test")
# A user who never logged in and does not linger: no user manager runs.
OTHER = "other"
PYTHON = f"PYTHONPATH={COPY} python3 -P"
LOOK = f"{PYTHON} {COPY}/tests/vm/inside_environment.py"

USER_RUN = ("systemd-run", "--user", "--quiet")
SYSTEM_RUN = ("sudo", "systemd-run", "--quiet", "--pipe", "--wait", "--collect")


def su(user: str, line: str) -> str:
    return f"su {user} -c {shlex.quote(line)}"


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


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def sudo(line: str) -> str:
    done = run(["sudo", "sh", "-c", line])
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def run_in(name: str, lines: str) -> subprocess.CompletedProcess[str]:
    """The lines as a script: systemd-run(1) would change words with $ among its arguments."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".sh") as script:
        script.write(lines)
        script.flush()
        Path(script.name).chmod(0o644)
        return run(ENTER[name](f"sh {script.name}"))


def run_under_cron(user: str, lines: str, place: Path) -> str:
    """As a job of cron(8): one of @reboot starts when cron first does, not with the minute."""
    script, text, result = (place / name for name in ("job.sh", "text", "result"))
    place.mkdir()
    place.chmod(0o777)
    script.write_text(lines, encoding="utf-8")
    job = f"@reboot {user} sh {script} >{text} 2>&1; mv {text} {result}"
    sudo(
        f"rm -f /run/crond.reboot; echo {shlex.quote(job)} >/etc/cron.d/ocisbx-test; "
        "systemctl restart cron"
    )
    deadline = time.monotonic() + 120
    while not result.exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    sudo("rm /etc/cron.d/ocisbx-test")
    return result.read_text(encoding="utf-8")


def last_json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def seen_in(name: str, lines: str = LOOK) -> dict[str, Any]:
    """What the last of the lines prints as JSON."""
    done = run_in(name, lines)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return last_json(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def other_user() -> Iterator[None]:
    """Another user, who may ask the administrator too; the tree where both can read it."""
    sudo(
        f"useradd --create-home --shell /bin/bash {OTHER}; "
        f"echo '{OTHER} ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/ocisbx-{OTHER}; "
        f"mkdir {COPY}; cp -r {ROOT}/ocisbx {COPY}; "
        f"mkdir {COPY}/tests; cp -r {ROOT}/tests/vm {COPY}/tests; "
        f"python3 -m compileall -q {COPY}"
    )
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
    sudo(f"systemctl start user@{uid}")
    return uid, sudo(f"systemctl show --value --property MainPID user@{uid}").strip()
