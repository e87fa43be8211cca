"""The directory of a container in the background: made whole, and given its end whatever the disk.

The room for result.json is taken when the container is created, so that a disk which the payload
has filled can still take the verdict.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from ocisbx.bundle.directory import remove_tree
from ocisbx.bundle.owner import draft_name, read_regular
from ocisbx.bundle.record import RECORD_FILE, RESULT_FILE, STARTED_FILE, boot_s
from ocisbx.bundle.view import write_file
from ocisbx.errors import BundleError, OcisbxError
from ocisbx.places import ensure, find_places
from ocisbx.result import Captured, RunResult
from ocisbx.values import utc_text

if TYPE_CHECKING:
    from ocisbx.bundle.record import Record

RESERVED_FILE = ".result"
# What a result takes without its command and its output, several times over.
RESULT_BYTES = 32 << 10


def make_directory(record: Record) -> None:
    """Make the container's directory with its record in it.

    Raises:
        OcisbxError: the place is not ours, or the disk is full.
    """
    ensure(find_places().state)
    containers = ensure(find_places().containers)
    owner = record.supervisor
    draft = f"{containers}/{draft_name(*owner[:3], record.id)}"
    text = record.to_json()
    try:
        os.mkdir(draft, 0o700)
        write_file(f"{draft}/{RECORD_FILE}", text.encode(), 0o600)
        _reserve(f"{draft}/{RESERVED_FILE}", RESULT_BYTES + 2 * len(text))
        os.rename(draft, record.path)
    except OSError as error:
        with contextlib.suppress(BundleError):
            remove_tree(draft)
        raise OcisbxError(
            f"{record.path} cannot be made",
            why=error.strerror or "",
            remedy="make room there, or point XDG_STATE_HOME at a directory of your own",
        ) from error


def _reserve(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def write_started(record: Record) -> None:
    """Say that the payload has been started. Raises OSError."""
    draft = f"{record.path}/.{STARTED_FILE}"
    document = {"started_at": utc_text(), "started_boot_s": boot_s()}
    write_file(draft, json.dumps(document).encode(), 0o600)
    os.rename(draft, f"{record.path}/{STARTED_FILE}")


def write_ending(record: Record, document: dict[str, Any]) -> None:
    """Leave the verdict: on the disk, and whole, when this returns. Raises OSError."""
    data = json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace")
    reserved = f"{record.path}/{RESERVED_FILE}"
    descriptor = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(reserved, f"{record.path}/{RESULT_FILE}")
    directory = os.open(record.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_ending(path: str) -> dict[str, Any] | None:
    """What write_ending() wrote in this directory; None: nothing (yet). Raises BundleError."""
    try:
        document = json.loads(read_regular(f"{path}/{RESULT_FILE}"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}/{RESULT_FILE} cannot be read", why=str(error)) from error
    if not isinstance(document, dict):
        raise BundleError(f"{path}/{RESULT_FILE} is not a result")
    return document


def result_in(path: str, document: dict[str, Any]) -> RunResult:
    """The result in an ending, with the captures beside it. Raises BundleError."""
    try:
        result = document["result"]
        streams = [_captured(path, result, name) for name in ("stdout", "stderr")]
        return RunResult.from_dict(result, *streams)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{path}/{RESULT_FILE} is not a result", why=str(error)) from error


def _captured(path: str, result: dict[str, Any], name: str) -> Captured:
    file = f"{path}/{name}"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Captured()
    return Captured(
        fd=descriptor,
        total_bytes=int(result[f"{name}_bytes"]),
        truncated=bool(result[f"{name}_truncated"]),
        path=file,
    )
