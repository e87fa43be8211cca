"""What is remembered of runtimes: believed only where nobody else can have written it, and where
nothing that it rests on has changed."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.probe import remembered
from ocisbx.probe.remembered import (
    FAILURE_KEPT_S,
    READ_LIMIT_BYTES,
    RuntimeMemory,
    TrialRecord,
    identity,
    runtime_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOUND = TrialRecord("", "", 0.02, 1.0, {"Seccomp": "2"})


def failure(at: float | None = None) -> TrialRecord:
    return TrialRecord("no clone", "mend it", 0.1, time.time() if at is None else at, {})


@pytest.fixture
def binary(tmp_path: Path) -> str:
    path = tmp_path / "bin" / "crun"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def file(tmp_path: Path, binary: str) -> Path:
    """A memory on disk that knows the binary."""
    path = tmp_path / "cache" / "runtimes.json"
    path.parent.mkdir(mode=0o700)
    memory = RuntimeMemory(str(path))
    memory.put_version(binary, "crun", "1.28")
    memory.put_trial(binary, None, SOUND)
    memory.save()
    return path


def knows(file: Path, binary: str) -> bool:
    memory = RuntimeMemory(str(file))
    known = memory.version(binary) is not None
    assert known == (memory.trial(binary, None) is not None)
    return known


def test_another_process_reads_what_was_saved(file: Path, binary: str) -> None:
    memory = RuntimeMemory(str(file))
    assert memory.version(binary) == ("crun", "1.28")
    assert memory.trial(binary, None) == SOUND
    assert memory.trial(binary, "systrap") is None


def test_only_its_owner_can_read_it_and_nothing_half_made_lies_beside_it(file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.parent) == ["runtimes.json"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_one_that_is_open_to_others_is_not_believed(file: Path, binary: str, mode: int) -> None:
    assert knows(file, binary)
    file.chmod(mode)
    assert not knows(file, binary)


def test_a_symlink_is_not_followed(file: Path, binary: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert not knows(link, binary)


def test_what_is_no_file_is_no_memory(tmp_path: Path, binary: str) -> None:
    """Nor does opening it wait for a writer."""
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert not knows(tmp_path / "fifo", binary)
    assert not knows(tmp_path, binary)


@pytest.mark.parametrize("part", [0, 1, 2], ids=["version", "kernel", "boot"])
def test_another_boot_kernel_or_version_of_ours(file: Path, binary: str, part: int) -> None:
    document = json.loads(file.read_text())
    document["of"][part] += "x"
    file.write_text(json.dumps(document))
    assert not knows(file, binary)


def _rewrite(path: str) -> None:
    with open(path, "a", encoding="utf-8") as opened:
        opened.write("# newer\n")


def _replace(path: str) -> None:
    with open(f"{path}.new", "wb") as new, open(path, "rb") as old:
        new.write(old.read())
    os.replace(f"{path}.new", path)


def _touch(path: str) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [_rewrite, _replace, _touch, os.unlink])
def test_another_binary_by_the_same_name(
    file: Path, binary: str, change: Callable[[str], None]
) -> None:
    before = identity(binary)
    change(binary)
    assert identity(binary) != before
    assert not knows(file, binary)


# ------------------------------------------------------------------------------------- forgetting
def test_what_failed_is_tried_again_later(file: Path, binary: str) -> None:
    memory = RuntimeMemory(str(file))
    now = time.time()
    memory.put_trial(binary, "systrap", failure())
    assert memory.trial(binary, "systrap") == memory.trial(binary, "systrap")
    for at in (now - FAILURE_KEPT_S - 1, now + 3600):
        memory.put_trial(binary, "systrap", failure(at))
        assert memory.trial(binary, "systrap") is None
    assert memory.trial(binary, None) == SOUND


def test_forgetting_takes_the_trials_and_leaves_the_version(file: Path, binary: str) -> None:
    memory = RuntimeMemory(str(file))
    memory.put_trial(binary, "systrap", failure())
    memory.forget(binary)
    for one in (memory, RuntimeMemory(str(file))):
        assert one.trial(binary, None) is None
        assert one.trial(binary, "systrap") is None
        assert one.version(binary) == ("crun", "1.28")
    memory.forget("/never/heard/of")


# ---------------------------------------------------------------------------------------- writing
def test_one_that_cannot_be_written_is_no_error(tmp_path: Path, binary: str) -> None:
    (tmp_path / "plain").write_text("")
    memory = RuntimeMemory(str(tmp_path / "plain" / "runtimes.json"))
    memory.put_version(binary, "crun", "1.28")
    memory.save()
    assert memory.version(binary) == ("crun", "1.28")


def test_a_directory_that_others_can_write_is_not_used(tmp_path: Path, binary: str) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    memory = RuntimeMemory(str(place / "runtimes.json"))
    memory.put_version(binary, "crun", "1.28")
    memory.save()
    assert os.listdir(place) == []


def test_nothing_new_is_nothing_to_write(file: Path) -> None:
    before = file.stat()
    RuntimeMemory(str(file)).save()
    assert file.stat() == before


def test_writers_at_the_same_time_leave_a_whole_file(file: Path, binary: str) -> None:
    def write(number: int) -> None:
        memory = RuntimeMemory(str(file))
        for round_ in range(20):
            memory.put_trial(binary, f"{number} {round_}", SOUND)
            memory.save()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert json.loads(file.read_text())["rows"]
    for writer in writers:
        writer.join()
    assert os.listdir(file.parent) == ["runtimes.json"]
    assert knows(file, binary)


def test_a_process_has_one_memory_for_each_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    first = runtime_memory()
    assert runtime_memory() is first
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    assert runtime_memory() is not first


# ----------------------------------------------------------------------------------------- damage
def circumstances() -> list[str]:
    return remembered._circumstances()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3)
    ),
    max_leaves=8,
)


def ask(path: Path, text: bytes, binary: str) -> tuple[Any, Any]:
    """What a memory with this content says; it must be able to go on from there."""
    path.write_bytes(text)
    path.chmod(0o600)
    memory = RuntimeMemory(str(path))
    answers = memory.version(binary), memory.trial(binary, None)
    memory.forget(binary)
    memory.put_trial(binary, None, SOUND)
    assert memory.trial(binary, None) == SOUND
    return answers


@given(st.binary(max_size=200))
def test_noise_is_no_memory(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.json"
    assert ask(path, noise, "/x") == (None, None)


@given(JSON)
def test_any_json_is_no_memory(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "json.json"
    assert ask(path, json.dumps(document).encode(), "/x") == (None, None)


@given(row=JSON, said=JSON, trial=JSON)
def test_rows_of_any_shape(
    tmp_path_factory: pytest.TempPathFactory, row: Any, said: Any, trial: Any
) -> None:
    """Our own circumstances, and something else where a row belongs."""
    path = tmp_path_factory.getbasetemp() / "rows.json"
    for rows in ({"/x": row}, {"/x": {"said": said, "trial ": trial}}, row):
        version, _ = ask(path, json.dumps({"of": circumstances(), "rows": rows}).encode(), "/x")
        assert version is None or all(isinstance(text, str) for text in version)


@given(cut=st.integers(min_value=0, max_value=300))
def test_what_was_cut_off_is_no_memory(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.json"
    rows = {"/x": {"said": ["crun", "1.28"], "trial ": SOUND._asdict()}}
    whole = json.dumps({"of": circumstances(), "rows": rows}).encode()
    assert ask(path, whole, "/x") == (("crun", "1.28"), SOUND)
    assert ask(path, whole[: min(cut, len(whole) - 1)], "/x") == (None, None)


def test_a_huge_file_is_not_read_whole(file: Path, binary: str) -> None:
    with file.open("ab") as opened:
        opened.truncate(READ_LIMIT_BYTES + 1)
    assert not knows(file, binary)
