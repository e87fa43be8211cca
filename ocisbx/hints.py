"""Why a command was not found or cannot be executed, and which option would make it visible.

Looks at the host only: what the container sees is known from the plan.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

from ocisbx.probe.programs import find_program
from ocisbx.result import Hint, Termination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocisbx.plan import Plan

# Programs of a tool lie in one of these, and its libraries beside it.
PROGRAM_DIRECTORIES = ("bin", "sbin", "shims", "condabin")
SYSTEM_TREES = ("/usr/", "/bin/", "/sbin/", "/lib")
SHEBANG_LIMIT_BYTES = 256


def explain(plan: Plan, argv: Sequence[str], termination: Termination) -> Hint:
    """What stood in the way of `argv[0]` (of a payload that never ran)."""
    name = argv[0]
    path = _host_path(plan, name)
    if path is None:
        return Hint(f"{name} is neither in the container nor on the host", _spelling(name))
    if termination is Termination.NOT_EXECUTABLE:
        return _not_executable(path)
    if not visible(plan, path):
        return _not_in_the_root(plan, path, name) or _outside(path, bare="/" not in name)
    interpreter = _interpreter(path)
    if interpreter and not visible(plan, interpreter):
        return _interpreter_missing(path, interpreter)
    if "/" not in name:
        return Hint(f"{path} is not on the container's PATH", f"give it as {path}")
    why = f"{path} exists on the host; its loader or interpreter is not in the container"
    return Hint(why, "`file` and `ldd` tell which it is; -v DIR:ro makes its directory visible")


def visible(plan: Plan, path: str) -> bool:
    """Whether the container shows this host path, through symlinks too, at its own place."""
    real = os.path.realpath(path)
    return any(
        real == shown.source or real.startswith(shown.source + "/")
        for shown in plan.shown
        if shown.source == shown.target
    )


def _not_in_the_root(plan: Plan, path: str, name: str) -> Hint | None:
    """For a system program of the host under an unpacked root, which shows nothing of /usr."""
    shows_usr = any(
        shown.source == shown.target and f"{shown.source}/".startswith("/usr/")
        for shown in plan.shown
    )
    if shows_usr or not path.startswith(SYSTEM_TREES):
        return None
    why = f"{name}, or its interpreter or loader, is not in the root that --rootfs names"
    return Hint(why, "install it there, or use the host's programs: --rootfs host")


def _spelling(name: str) -> str:
    if any(mark in name for mark in " |&;<>$"):
        return f"one text for a shell is written: sh -c {shlex.quote(name)}"
    return "install it on the host, or check the spelling"


def _host_path(plan: Plan, name: str) -> str | None:
    if "/" not in name:
        return find_program(name)
    path = os.path.join(plan.workdir, name)
    return path if os.path.lexists(path) else None


def _outside(path: str, *, bare: bool) -> Hint:
    directory = os.path.dirname(path)
    tree = directory
    if os.path.basename(directory) in PROGRAM_DIRECTORIES:
        tree = os.path.dirname(directory)
    options = f"-v {shlex.quote(tree + ':ro')}"
    if bare:
        options += f" -e {shlex.quote('PATH=' + directory + ':/usr/bin:/bin')}"
    return Hint(f"{path} lies outside what the container sees", options)


def _interpreter_missing(path: str, interpreter: str) -> Hint:
    if not os.path.exists(interpreter):
        why = f"{path}: its interpreter {interpreter} does not exist"
        return Hint(why, "correct the script's first line, or start it by its interpreter")
    outside = _outside(interpreter, bare=False)
    return Hint(f"{path}: its interpreter {outside.why}", outside.remedy)


def _interpreter(path: str) -> str:
    """What the first line names. A payload of the same workspace may have put a FIFO or a device
    in the program's place, which must not hold up the driver."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.read(descriptor, SHEBANG_LIMIT_BYTES) if regular else b""
    finally:
        os.close(descriptor)
    line = text.split(b"\n", 1)[0]
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].split()
    return os.fsdecode(words[0]) if words else ""


def _not_executable(path: str) -> Hint:
    if os.path.isdir(path):
        return Hint(f"{path} is a directory", "name a program in it")
    if not os.access(path, os.X_OK):
        return Hint(f"{path} has no execute bit", f"chmod +x {shlex.quote(path)}")
    return Hint(
        f"{path} is neither a program of this machine nor a script with a #! line",
        "start it by its interpreter, as in: sh SCRIPT",
    )
