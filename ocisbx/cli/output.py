"""Printing: UTF-8 bytes straight to the descriptor, nothing held back, tables plain and aligned."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ocisbx.errors import OcisbxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STDOUT = 1
STDERR = 2

# What JSON leaves as it is and a terminal acts upon: DEL and the C1 controls (U+009B is CSI), line
# separators, and what turns the direction of writing.
STEERING = (*range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F),
            *range(0x2066, 0x206A))  # fmt: skip
ESCAPES = {code: f"\\u{code:04x}" for code in STEERING}


def put(text: str, descriptor: int = STDOUT) -> None:
    """Write all of `text`.

    Raises:
        BrokenPipeError: nobody reads any more.
        OcisbxError: it cannot be written (a full disk, a closed descriptor).
    """
    data = memoryview(text.encode(errors="backslashreplace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OcisbxError(
            f"cannot write to descriptor {descriptor}", why=error.strerror or ""
        ) from error


def say(text: str) -> None:
    """One message for a person, on stderr; a reader that is gone is no reason to fail."""
    try:
        put(text + "\n", STDERR)
    except (OSError, OcisbxError):
        return


def put_json(document: object) -> None:
    """A document for programs and people: indented, text as it is but for what steers."""
    put(inert_json(document, indent=2) + "\n")


def inert_json(document: object, *, indent: int | None = None) -> str:
    """JSON that a terminal shows as it is; what could steer one is escaped, so means the same."""
    return json.dumps(document, ensure_ascii=False, indent=indent).translate(ESCAPES)


def printable(text: str) -> str:
    """One line that a terminal shows as it is: control characters as Python would write them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def put_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under the upper-case names of `columns`; the last column is not padded."""
    cells = [[name.upper() for name in columns]]
    cells += [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        put("  ".join(padded).rstrip() + "\n")


def put_fields(fields: Mapping[str, Any]) -> None:
    """`NAME  value`, one a line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        put(f"{name:{width}}  {_cell(value)}".rstrip() + "\n")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_cell, value))
    return printable(str(value))
