"""Concurrent writers and readers of a database in WAL mode: python3 writers.py FILE"""

import multiprocessing
import sqlite3
import sys

WRITERS, ROWS = 4, 100


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=60, isolation_level=None)


def write(path: str, writer: int) -> None:
    database = connect(path)
    for row in range(ROWS):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO rows VALUES (?, ?)", (writer, row))
        database.execute("UPDATE total SET count = count + 1")
        database.execute("COMMIT")
    database.close()


def main(path: str) -> None:
    database = connect(path)
    assert database.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    database.execute("CREATE TABLE rows (writer, row, PRIMARY KEY (writer, row))")
    database.execute("CREATE TABLE total AS SELECT 0 AS count")
    writers = [
        multiprocessing.Process(target=write, args=(path, writer)) for writer in range(WRITERS)
    ]
    for process in writers:
        process.start()
    # A reader's snapshot is one moment, whatever the writers do meanwhile.
    while any(process.is_alive() for process in writers):
        query = "SELECT (SELECT count(*) FROM rows), (SELECT count FROM total)"
        rows, count = database.execute(query).fetchone()
        assert rows == count
    for process in writers:
        process.join()
        assert process.exitcode == 0
    print(*database.execute("PRAGMA integrity_check").fetchone())


if __name__ == "__main__":
    main(sys.argv[1])
