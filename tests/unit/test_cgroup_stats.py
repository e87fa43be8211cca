"""Counters of a cgroup, from files as kernels write them, and from anything else."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.cgroup.stats import (
    LIVE,
    TOTALS,
    Counters,
    read_counters,
    read_limit,
    read_pids_limit_hits,
)

# Of kernel 6.1 with every controller (Debian 12, a sandbox with a limit of everything).
WHOLE = {
    "cpu.stat": "usage_usec 2019\nuser_usec 1500\nsystem_usec 519\nnr_periods 7\n"
    "nr_throttled 3\nthrottled_usec 81234\nnr_bursts 0\nburst_usec 0\n",
    "memory.current": "4096\n",
    "memory.peak": "209715200\n",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n",
    "pids.current": "2\n",
    "pids.peak": "17\n",
    "pids.events": "max 4\n",
    "io.stat": "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"
    "7:0 \n254:16 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n",
    "cpu.pressure": "some avg10=0.00 avg60=0.12 avg300=0.00 total=1234\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
}
EXPECTED = Counters(
    cpu_user_usec=1500, cpu_system_usec=519, cpu_throttled_usec=81234, memory_current_bytes=4096,
    memory_peak_bytes=209715200, pids_current=2, pids_peak=17, io_read_bytes=4097,
    io_write_bytes=8194, oom_kills=3, pids_limit_hits=4, pressure_cpu_usec=1234,
    pressure_memory_usec=0, pressure_io_usec=5,
)  # fmt: skip
FIELDS = {name: [field for _, field in fields] for name, _, fields in LIVE}


def fill(directory: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return str(directory)


def test_every_counter_has_its_file() -> None:
    assert sorted(field for fields in FIELDS.values() for field in fields) == sorted(
        Counters._fields
    )
    assert FIELDS.keys() == WHOLE.keys()


def test_all_files_are_read(tmp_path: Path) -> None:
    path = fill(tmp_path, WHOLE)
    assert read_counters(path, LIVE) == EXPECTED
    totals = dict.fromkeys(("memory_current_bytes", "pids_current"))
    assert read_counters(path, TOTALS) == EXPECTED._replace(**totals)
    assert read_pids_limit_hits(path) == 4


@pytest.mark.parametrize("name", WHOLE)
def test_an_absent_file_takes_its_counters_only(tmp_path: Path, name: str) -> None:
    path = fill(tmp_path, {other: text for other, text in WHOLE.items() if other != name})
    assert read_counters(path, LIVE) == EXPECTED._replace(**dict.fromkeys(FIELDS[name]))


def test_keys_that_this_kernel_has_not_are_none(tmp_path: Path) -> None:
    """As on hybrid hosts: cpu.stat is there, without its controller's keys."""
    path = fill(tmp_path, {"cpu.stat": "usage_usec 3\nuser_usec 1\nsystem_usec 2\n"})
    assert read_counters(path, TOTALS) == Counters(cpu_user_usec=1, cpu_system_usec=2)


def test_nothing_read_or_written_is_a_measured_zero(tmp_path: Path) -> None:
    counters = read_counters(fill(tmp_path, {"io.stat": ""}), TOTALS)
    assert (counters.io_read_bytes, counters.io_write_bytes) == (0, 0)


def test_a_cgroup_that_is_gone_has_no_counters(tmp_path: Path) -> None:
    assert read_counters(str(tmp_path / "gone"), TOTALS) == Counters()
    assert read_pids_limit_hits(str(tmp_path / "gone")) is None
    assert read_counters("", TOTALS) == Counters()


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    """A directory (EISDIR) and a pipe that nobody writes stand for whatever read(2) refuses."""
    (tmp_path / "memory.peak").mkdir()
    os.mkfifo(tmp_path / "cpu.stat")
    (tmp_path / "pids.peak").symlink_to("pids.peak")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        (tmp_path / "pids.peak").read_bytes()
    assert read_counters(str(tmp_path), TOTALS) == Counters()


def test_limits_are_numbers_or_none(tmp_path: Path) -> None:
    fill(tmp_path, {"memory.max": "536870912\n", "pids.max": "max\n"})
    assert read_limit(str(tmp_path), "memory.max") == 536870912
    assert read_limit(str(tmp_path), "pids.max") is None
    assert read_limit(str(tmp_path), "cpu.weight") is None


def test_more_devices_than_fit_one_read_are_all_summed(tmp_path: Path) -> None:
    lines = [f"8:{n} rbytes={n} wbytes=1 rios=0 wios=0 dbytes=0 dios=0\n" for n in range(2000)]
    counters = read_counters(fill(tmp_path, {"io.stat": "".join(lines)}), TOTALS)
    assert counters.io_read_bytes == sum(range(2000))
    assert counters.io_write_bytes == 2000


numbers = st.integers(0, 2**64 - 1)
keys = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)


@given(rows=st.dictionaries(keys, numbers), kills=st.none() | numbers, data=st.data())
def test_flat_keyed_files_in_any_order(
    rows: dict[str, int], kills: int | None, data: st.DataObject
) -> None:
    rows.pop("oom_kill", None)
    if kills is not None:
        rows["oom_kill"] = kills
    lines = data.draw(st.permutations([f"{key} {value}\n" for key, value in rows.items()]))
    with TemporaryDirectory() as made:
        counters = read_counters(fill(Path(made), {"memory.events": "".join(lines)}), TOTALS)
    assert counters == Counters(oom_kills=kills)


@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 2**20), numbers, numbers)))
def test_io_is_summed_over_devices(rows: list[tuple[int, int, int, int]]) -> None:
    lines = [f"{major}:{minor} rbytes={r} wbytes={w} rios=1\n" for major, minor, r, w in rows]
    with TemporaryDirectory() as made:
        counters = read_counters(fill(Path(made), {"io.stat": "".join(lines)}), TOTALS)
    assert counters.io_read_bytes == sum(row[2] for row in rows)
    assert counters.io_write_bytes == sum(row[3] for row in rows)


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.binary(max_size=200)))
def test_any_bytes_are_numbers_or_none(files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as made:
        for name, content in files.items():
            (Path(made) / name).write_bytes(content)
        counters = read_counters(made, TOTALS)
    for name, fields in FIELDS.items():
        for field in fields:
            value = getattr(counters, field)
            assert value is None or (type(value) is int and value >= 0)
            assert name in files or value is None


HOSTILE = [
    "", "\n", "-1\n", "+1\n", "1e3\n", "0x10\n", "max\n", "1 2\n", "١٢\n", "1\0\n", "9" * 21,
    "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_number_is_none(tmp_path: Path, text: str) -> None:
    files = {
        "memory.peak": text,
        "cpu.stat": f"user_usec {text}\n",
        "io.stat": f"8:0 rbytes={text}",
        "io.pressure": f"some avg10=0.00 total={text}",
    }
    counters = read_counters(fill(tmp_path, files), TOTALS)
    assert counters.memory_peak_bytes is None
    assert counters.cpu_user_usec is None
    assert counters.pressure_io_usec is None
    assert counters.io_read_bytes in (None, 1)  # "1 2" has a number of one device


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "io.stat").symlink_to("/dev/zero")
    assert read_counters(str(tmp_path), TOTALS).io_read_bytes == 0
