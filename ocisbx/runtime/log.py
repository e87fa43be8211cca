"""The runtime's own words: its JSON log (`--log FILE --log-format json`), and what it printed."""

from __future__ import annotations

import json
import os

# More than any runtime writes about one start; a log that grows beyond it is not read further.
READ_LIMIT_BYTES = 1 << 16
LINE_LIMIT = 300
# runc, crun and runsc write {"level": "error", "msg": ...}, youki "ERROR" and "message".
ERROR_LEVELS = ("error", "fatal")
TEXT_KEYS = ("msg", "message")


def error_words(log_path: str, output: int, *, cause_first: bool = False) -> str:
    """The last error of the log (`cause_first`: the first, of which the others are consequences);
    else the last line of what was printed (a descriptor); else "".

    Both belong to the runtime, which speaks before any payload runs: a payload's output never
    gets there.
    """
    errors = [
        str(entry[key])
        for entry in _entries(log_path)
        for key in TEXT_KEYS
        if key in entry and str(entry.get("level")).lower() in ERROR_LEVELS
    ]
    if errors:
        return _one_line(errors[0 if cause_first else -1])
    printed = [line for line in _read(output).splitlines() if line.strip()]
    return _one_line(printed[-1]) if printed else ""


def _entries(path: str) -> list[dict[str, object]]:
    """The objects of the log: one a line, or (gVisor) one after the other."""
    found = []
    decoder = json.JSONDecoder()
    for line in _tail(path).splitlines():
        at = 0
        while (at := line.find("{", at)) >= 0:
            try:
                entry, at = decoder.raw_decode(line, at)
            except (ValueError, RecursionError):
                break
            found.append(entry)
    return found


def _tail(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, READ_LIMIT_BYTES, max(0, size - READ_LIMIT_BYTES))
    return data.decode(errors="replace")


def _one_line(text: str) -> str:
    clean = "".join(character if character.isprintable() else " " for character in text)
    clean = " ".join(clean.split())
    if len(clean) <= LINE_LIMIT:
        return clean
    # What failed stands at the beginning, the kernel's reason at the end.
    half = (LINE_LIMIT - 5) // 2
    return f"{clean[:half]} ... {clean[-half:]}"
