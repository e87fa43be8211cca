"""The audit log: one line of JSON for each call, without anything secret [119].

Arguments may hold passwords and tokens: those that look it are replaced. Values of environment
variables are never written.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from ocisbx.errors import OcisbxError
from ocisbx.places import ensure, find_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocisbx.plan import Plan
    from ocisbx.result import RunResult

ROTATE_BYTES = 8 << 20
KEPT_FILES = 4
ARGUMENT_LIMIT = 512
# Of hostile text so much takes milliseconds.
EARLY_LIMIT = 512
REDACTED = "[redacted]"

# No more of an argument is looked at: the patterns take quadratic time on hostile text.
LOOK_AT = 2 * ARGUMENT_LIMIT
# NAME=value and --name=value, for names that say that the value is a secret ...
SECRET_NAME = re.compile(
    r"(?i)(?<![-\w.])(?P<name>[-\w.]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|"
    r"credential|auth|private[-_]?key)[-\w.]*\s*[=:]\s*)(?P<value>\S.*)"
)
# ... and --name value in two arguments; `-u user:password`; a password in a URL.
SECRET_OPTION = re.compile(
    r"(?i)^--?[-\w]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|"
    r"credential|private[-_]?key)[-\w]*$"
)
URL_PASSWORD = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^/\s@]+@", re.IGNORECASE)
# Shapes of well-known tokens: AWS, GitHub, GitLab, Slack, JSON web tokens, sk- keys.
TOKEN = re.compile(
    r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
    r"xox[abpr]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|sk-[\w-]{16,})"
)


def redact(argv: Sequence[str]) -> list[str]:
    """The arguments with what looks like a secret replaced, each cut to 512 characters."""
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        if hide_next:
            shown.append(REDACTED)
            hide_next = False
            continue
        seen = argument[:LOOK_AT]
        hide_next = SECRET_OPTION.match(seen) is not None
        text = SECRET_NAME.sub(rf"\g<name>{REDACTED}", seen)
        text = URL_PASSWORD.sub(rf"\g<scheme>{REDACTED}@", text)
        text = TOKEN.sub(REDACTED, text)
        cut = len(argument) > LOOK_AT or len(text) > ARGUMENT_LIMIT
        shown.append(text[:ARGUMENT_LIMIT] + "..." if cut else text)
    return shown


_encode = json.JSONEncoder(ensure_ascii=False).encode


def begin_line(
    call_id: str, started_at: str, command: Sequence[str], plan: Plan
) -> AuditLine | None:
    """The line of a call that runs; None for a long command: nobody drives the call meanwhile, and
    what looks for secrets may take quadratic time, so its line is made at the end."""
    if sum(map(len, command)) > EARLY_LIMIT:
        return None
    return AuditLine(call_id, started_at, command, plan)


class AuditLine:
    """The line of one call: begun while it runs, written when it has ended."""

    def __init__(self, call_id: str, started_at: str, command: Sequence[str], plan: Plan) -> None:
        self._path = find_places().audit
        self._head = _encode(
            {
                "at": started_at,
                "id": call_id,
                "uid": os.getuid(),
                "pid": os.getpid(),
                "command": redact(command),
                "workdir": plan.workdir,
                "runtime": f"{plan.runtime.name} {plan.runtime.version}",
            }
        )

    def write(self, result: RunResult) -> None:
        """Append it; a log that cannot be written is no reason for a call to fail."""
        usage = result.usage
        tail = _encode(
            {
                "termination": result.termination.value,
                "exit_code": result.exit_code,
                "signal": result.signal,
                "wall_s": usage.wall_s,
                "stdout_bytes": result.stdout_bytes,
                "stderr_bytes": result.stderr_bytes,
                "unenforced": [
                    name for name, entry in result.enforcement.items() if entry.state != "enforced"
                ],
            }
        )
        # One object of two.
        line = f"{self._head[:-1]}, {tail[1:]}\n"
        try:
            _append(self._path, line.encode(errors="replace"))
        except (OSError, OcisbxError):
            return


def _append(path: str, line: bytes) -> None:
    # One write of one line: O_APPEND makes writers in other processes wait their turn.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        ensure(os.path.dirname(path))
        descriptor = os.open(path, flags, 0o600)
    try:
        full = os.fstat(descriptor).st_size + len(line) > ROTATE_BYTES
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    if full:
        _rotate(path)


def _rotate(path: str) -> None:
    for number in range(KEPT_FILES - 1, 0, -1):
        source = path if number == 1 else f"{path}.{number - 1}"
        if os.path.exists(source):
            os.replace(source, f"{path}.{number}")
