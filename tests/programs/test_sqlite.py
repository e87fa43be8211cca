"""SQLite: locks, and shared memory that is a file of the workspace (WAL)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.box import PYTHON

if TYPE_CHECKING:
    from tests.box import Box
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime


def test_concurrent_writers_in_wal_mode(work: Work, box: Box) -> None:
    script = f"""
        {PYTHON} writers.py data.db
        sqlite3 data.db 'SELECT count, count(*) FROM rows, total; PRAGMA journal_mode'
        sqlite3 data.db .dump | sqlite3 /tmp/copy.db
        sqlite3 -csv /tmp/copy.db 'SELECT writer, sum(row) FROM rows GROUP BY writer'
    """
    assert work("sqlite", script).split() == [
        "ok", "400|400", "wal", "0,4950", "1,4950", "2,4950", "3,4950",
    ]  # fmt: skip
    with closing(sqlite3.connect(box.workspace / "data.db")) as database:
        assert database.execute("SELECT count FROM total").fetchone() == (400,)
