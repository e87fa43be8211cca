"""Part of the agent: the processes that a user has in a guest, and how each is started.

A process of the agent's own, an ssh's, and a service of the system's manager end and take signals
in different ways; `Started` hides that.
"""

import contextlib
import errno
import grp
import os
import pwd
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATHS = {
    True: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    False: "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
}
# A guest is there for one command, so that its service needs one name.
_UNIT = "command.service"
_ENDED = Path("/run/ocisbx-vm-ended")


@dataclass(frozen=True)
class Started:
    """A command: the process with its streams, its exit code once that has ended, its signals."""

    process: subprocess.Popen[bytes]
    code: Callable[[], int]
    signal: Callable[[int], None]


def find_user(name: str) -> pwd.struct_passwd:
    """Return a user of the guest; raise LookupError when there is none of that name."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        what = f"the guest has no user {name}"
        raise LookupError(what) from None


def start(asked: dict[str, Any]) -> Started:
    """Start what the host asks for; raise FileNotFoundError when there is no such program."""
    user = find_user(asked["user"])
    started = _CONTEXTS[asked["context"]](user, asked)
    for stream in (started.process.stdin, started.process.stdout, started.process.stderr):
        if stream is not None:
            # So that the user may open /dev/stdout too.
            os.fchown(stream.fileno(), user.pw_uid, user.pw_gid)
    return started


def _environment(user: pwd.struct_passwd) -> dict[str, str]:
    return {
        "HOME": user.pw_dir,
        "LANG": "C.UTF-8",
        "LOGNAME": user.pw_name,
        "PATH": _PATHS[user.pw_uid == 0],
        "SHELL": user.pw_shell,
        "USER": user.pw_name,
    }


def _popen(
    argv: Sequence[str], user: pwd.struct_passwd, directory: str, env: dict[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=directory,
        env={**_environment(user), **env},
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[one.gr_gid for one in grp.getgrall() if user.pw_name in one.gr_mem],
        start_new_session=True,
    )


def _own(process: subprocess.Popen[bytes]) -> Started:
    def code() -> int:
        returned = process.returncode
        return returned if returned >= 0 else 128 - returned

    def pass_on(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.Signals(number))

    return Started(process, code, pass_on)


def _scope(user: pwd.struct_passwd, asked: dict[str, Any]) -> Started:
    bus = f"/run/user/{user.pw_uid}"
    env = dict(asked["env"])
    if user.pw_uid:
        env.update(XDG_RUNTIME_DIR=bus, DBUS_SESSION_BUS_ADDRESS=f"unix:path={bus}/bus")
    program = _program(asked, user)
    manager = ["--user"] if user.pw_uid else []
    options = [*manager, "--scope", "--quiet", "-pDelegate=yes"]
    argv = ["systemd-run", *options, "--", program, *asked["argv"][1:]]
    return _own(_popen(argv, user, asked["directory"], env))


def _session(user: pwd.struct_passwd, asked: dict[str, Any]) -> Started:
    """A signal ends the ssh, as it would outside: the protocol's own are not for its callers."""
    options = ["-o", "BatchMode=yes", "-i", "/home/dev/.ssh/id_ed25519"]
    words = ["env", *(f"{name}={value}" for name, value in asked["env"].items()), *asked["argv"]]
    line = f"{shlex.join(words)}; exit $?"  # a death by signal becomes 128 + N
    line = f"cd {shlex.quote(asked['directory'])} && {{ {line}; }}"
    argv = ["ssh", *options, f"{user.pw_name}@localhost", line]
    return _own(_popen(argv, find_user("root"), "/", {}))


def _service(*properties: str) -> Callable[[pwd.struct_passwd, dict[str, Any]], Started]:
    def begin(user: pwd.struct_passwd, asked: dict[str, Any]) -> Started:
        ended = f'ExecStopPost=+/bin/sh -c "echo $$EXIT_CODE $$EXIT_STATUS >{_ENDED}"'
        # The manager expands variables in arguments.
        argv = [word.replace("$", "$$") for word in asked["argv"][1:]]
        env = {**_environment(user), **asked["env"]}
        command = [
            *["systemd-run", f"--unit={_UNIT}", f"--uid={user.pw_name}"],
            *["--pipe", "--wait", "--collect", "--quiet"],
            *(f"-p{one}" for one in (*properties, ended)),
            f"-pWorkingDirectory={asked['directory']}",
            *(f"-E{name}={value}" for name, value in env.items()),
            *["--", _program(asked, user), *argv],
        ]
        _ENDED.unlink(missing_ok=True)
        process = _popen(command, find_user("root"), "/", {})
        return Started(process, lambda: _service_code(process), _signal_service)

    return begin


def _service_code(process: subprocess.Popen[bytes]) -> int:
    """Return the command's code; that of systemd-run, when it could not even start it."""
    if not _ENDED.exists():
        return process.returncode or 1
    how, status = _ENDED.read_text().split()
    return int(status) if how == "exited" else 128 + signal.Signals[f"SIG{status}"]


def _signal_service(number: int) -> None:
    command = ["systemctl", "kill", "--kill-whom=main", f"--signal={number}", _UNIT]
    subprocess.run(command, check=False, capture_output=True)


def _program(asked: dict[str, Any], user: pwd.struct_passwd) -> str:
    """Return the program's path; systemd-run has no exit code for one that is not there."""
    name: str = asked["argv"][0]
    if "/" in name:
        name = os.path.join(asked["directory"], name)
    found = shutil.which(name, path=_PATHS[user.pw_uid == 0])
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), asked["argv"][0])
    return found


_CONTEXTS = {
    "scope": _scope,
    "session": _session,
    "login": _service("PAMName=login"),
    "plain": _service(),
}
