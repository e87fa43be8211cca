"""Who could replace a program: the owners and modes of the file and of all above it."""

from __future__ import annotations

import os
import stat


def writable_by_others(path: str, uid: int, gid: int) -> list[str]:
    """Why somebody besides root and `uid` can change what runs as `path`; one line for each place.

    `gid` is the caller's own group, which is taken to be the caller's alone. A sticky directory
    (/tmp) lets nobody replace what is not theirs.
    """
    found = []
    place = os.path.realpath(path)
    while True:
        found += _reasons(place, uid, gid)
        if place == "/":
            return found
        place = os.path.dirname(place)


def _reasons(place: str, uid: int, gid: int) -> list[str]:
    try:
        info = os.stat(place)
    except OSError:
        return []
    shown = f"{place} ({stat.filemode(info.st_mode)} {info.st_uid}:{info.st_gid})"
    if info.st_uid not in (0, uid):
        return [f"{shown} belongs to uid {info.st_uid}"]
    if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
        return []
    if info.st_mode & stat.S_IWOTH:
        return [f"{shown} can be written by everybody"]
    if info.st_mode & stat.S_IWGRP and info.st_gid not in (0, gid):
        return [f"{shown} can be written by group {info.st_gid}"]
    return []


def owned_by(path: str, uid: int) -> bool:
    """Whether the file behind `path` belongs to `uid`."""
    try:
        return os.stat(path).st_uid == uid
    except OSError:
        return False
