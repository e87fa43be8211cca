"""The control protocol and what supervisors keep on disk: pure parts, with hostile input."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx import errors
from ocisbx.background.packets import (
    MEMBERS,
    PacketError,
    decode,
    decode_request,
    encode,
    error_document,
    error_of,
)
from ocisbx.background.times import EVERY_S, Moment, TimesWriter, offsets_since, read_times
from ocisbx.bundle.record import (
    Record,
    State,
    Supervisor,
    new_record,
    read_record,
    read_records,
    recorded_holder,
)
from ocisbx.cli.inside import _split
from ocisbx.errors import OcisbxError
from ocisbx.quantities import parse_signal

if TYPE_CHECKING:
    from pathlib import Path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=300))
def test_no_packet_raises_anything_else(data: bytes) -> None:
    try:
        verb, members = decode_request(data)
    except PacketError:
        return
    assert members.keys() == MEMBERS[verb].keys()


@given(st.sampled_from([*MEMBERS, "other", 3, None]), st.dictionaries(st.text(), JSON, max_size=2))
def test_requests_hold_what_their_verb_needs_or_are_refused(verb: object, more: Any) -> None:
    for document in (more | {"verb": verb}, {"number": 9, "grace_s": 1} | more | {"verb": verb}):
        try:
            told, members = decode_request(encode(document))
        except PacketError:
            continue
        assert told == verb
        assert members.keys() == MEMBERS[told].keys()


@pytest.mark.parametrize(
    "document",
    [
        {"verb": "signal", "number": 15},
        {"verb": "stop", "grace_s": None},
        {"verb": "stop", "grace_s": 0},
        {"verb": "stop", "grace_s": 2.5},
        {"verb": "usage"},
        {"verb": "start"},
        {"verb": "discard"},
        {"verb": "attach", "size": None},
        {"verb": "attach", "size": [1, 65535]},
    ],
)
def test_requests(document: dict[str, Any]) -> None:
    verb, members = decode_request(encode(document))
    assert {"verb": verb, **members} == document


@pytest.mark.parametrize(
    "document",
    [
        {"verb": "signal", "number": 0},
        {"verb": "signal", "number": 65},
        {"verb": "signal", "number": "15"},
        {"verb": "signal", "number": True},
        {"verb": "signal"},
        {"verb": "stop"},
        {"verb": "stop", "grace_s": -1},
        {"verb": "stop", "grace_s": float("nan")},
        {"verb": "stop", "grace_s": float("inf")},
        {"verb": "start", "more": 1},
        {"verb": ["start"]},
        {"verb": "attach"},
        *(
            {"verb": "attach", "size": size}
            for size in ([], [1], [0, 1], [1, 65536], [True, 1], "ab")
        ),
    ],
)
def test_wrong_requests(document: dict[str, Any]) -> None:
    with pytest.raises(PacketError):
        decode_request(encode(document))


@pytest.mark.parametrize("name", [*dir(errors)])
def test_errors_come_over_as_they_are(name: str) -> None:
    kind = getattr(errors, name)
    if not (isinstance(kind, type) and issubclass(kind, OcisbxError)):
        assert type(error_of({"type": name})) is OcisbxError
        return
    error = kind("what", why="why", remedy="remedy", exit_code=7)
    over = error_of(decode(encode(error_document(error))))
    assert (type(over), over.__dict__, over.exit_code) == (kind, error.__dict__, 7)


@given(JSON)
def test_no_error_is_too_strange(document: object) -> None:
    assert isinstance(error_of(document), OcisbxError)


def test_what_came_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((10.0, 10.5, 11.2, 50.0))
    monkeypatch.setattr("ocisbx.background.times.boot_s", lambda: next(clock))
    writer = TimesWriter(str(tmp_path))
    for stream, size in (("stdout", 5), ("stderr", 3), ("stdout", 7), ("stdout", 1)):
        writer.took(stream, size)
    moments = read_times(str(tmp_path))
    assert moments == [Moment(10.0, 0, 0), Moment(11.2, 5, 3), Moment(50.0, 12, 3)]
    assert offsets_since(moments, 0.0) == {"stdout": 0, "stderr": 0}
    # Within a second nobody knows: then it is shown.
    assert offsets_since(moments, 10.7) == {"stdout": 0, "stderr": 0}
    assert offsets_since(moments, 11.1) == {"stdout": 5, "stderr": 3}
    assert offsets_since(moments, 12.2 + EVERY_S) == {"stdout": 12, "stderr": 3}
    assert offsets_since(moments, 51.0) is None
    assert read_times(str(tmp_path / "nothing")) == []


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    containers = tmp_path / "ocisbx" / "containers"
    containers.mkdir(parents=True, mode=0o700)
    return containers


def keep(state: Path, record: Record) -> Record:
    (state / record.id).mkdir()
    (state / record.id / "record.json").write_text(record.to_json())
    return record


def test_the_order_is_that_of_creation_whatever_the_clock_said(state: Path) -> None:
    """The clock of the day was set back between the first and the second."""
    first = new_record("a1", "n", ["x"], "/", "crun 1")._replace(created_at="2030-01-01T00:00:00")
    second = new_record("a0", None, ["x"], "/", "crun 1")._replace(created_at="2020-01-01T00:00:00")
    older = first.supervisor._replace(boot_id="another")
    third = second._replace(id="a2", supervisor=older, created_boot_s=9e9)
    for record in (second, first, third):
        keep(state, record)
    assert [one.id for one in read_records()] == ["a2", "a1", "a0"]
    assert recorded_holder("n") == "a1"
    assert recorded_holder("other") is None


def test_the_state_follows_from_what_is_there(state: Path) -> None:
    record = keep(state, new_record("a1", None, ["x"], "/", "crun 1"))
    path = state / record.id
    assert record.state() is State.CREATED
    (path / "started.json").touch()
    assert record.state() == State.RUNNING
    dead = record._replace(supervisor=Supervisor(os.getpid(), 1, *record.supervisor[2:]))
    rebooted = record._replace(supervisor=record.supervisor._replace(boot_id="another"))
    elsewhere = dead._replace(supervisor=dead.supervisor._replace(pid_namespace=1))
    assert [one.state() for one in (dead, rebooted, elsewhere)] == ["lost", "lost", "running"]
    (path / "result.json").touch()
    assert {one.state() for one in (record, dead, rebooted, elsewhere)} == {State.EXITED}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"command": "x"},
        {"command": [1]},
        {"name": 3},
        {"supervisor": None},
        {"supervisor": {"pid": "1"}},
        {"created_boot_s": "1"},
        {"more": 1},
    ],
)
def test_a_damaged_record_is_none(state: Path, change: dict[str, Any]) -> None:
    record = keep(state, new_record("a1", None, ["x"], "/", "crun 1"))
    assert read_record("a1") == record
    file = state / "a1" / "record.json"
    file.write_text(json.dumps(json.loads(record.to_json()) | change))
    assert read_record("a1") is None
    for text in ("", "{", "[]", "[" * 100000):
        file.write_text(text)
        assert read_records() == []


@pytest.mark.parametrize(
    ("text", "number"),
    [("TERM", 15), ("sigterm", 15), ("15", 15), ("kill", 9), ("RTMIN", 34), ("40", 40)],
)
def test_signals(text: str, number: int) -> None:
    assert parse_signal(text) == number


@pytest.mark.parametrize("text", ["", "SIG", "0", "65", "-9", "NOPE", "+15"])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(OcisbxError):
        parse_signal(text)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("a:/b", ("a", "/b")),
        ("a:", ("a", "")),
        ("./a:b", ("", "./a:b")),
        ("/a:b", ("", "/a:b")),
        (".:b", ("", ".:b")),
        ("b", ("", "b")),
        ("a:b:c", ("a", "b:c")),
    ],
)
def test_paths_of_containers_and_of_the_host(word: str, parts: tuple[str, str]) -> None:
    assert _split(word) == parts
