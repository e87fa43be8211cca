"""`ocisbx stats` over records of this very process and files as a kernel shows them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.backends.live import LiveUsage, Meter, Rates, live_owners, rates
from ocisbx.bundle.owner import Owner
from ocisbx.cgroup.stats import Counters
from ocisbx.cli import carry_out
from ocisbx.cli.stats import Lines, Screen, document, table
from ocisbx.probe.processes import boot_id, pid_namespace, start_time

FILES = {
    "cpu.stat": "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\nthrottled_usec 0\n",
    "memory.current": "12939428\n",
    "memory.peak": "209715200\n",
    "memory.max": "536870912\n",
    "pids.current": "3\n",
    "pids.max": "max\n",
    "io.stat": "254:0 rbytes=4096 wbytes=0 rios=1 wios=0\n",
}
Make = Callable[..., Path]


def owner(container_id: str, **changes: object) -> Owner:
    fields: dict[str, object] = {
        "id": container_id, "name": None, "pid": os.getpid(),
        "start_time": start_time(os.getpid()), "pid_namespace": pid_namespace(),
        "boot_id": boot_id(), "created_at": f"2026-01-01T00:00:00.{container_id[-3:]}+00:00",
        "command": ["sleep", "60"], "workdir": "/", "runtime_name": "crun",
        "runtime_path": "/usr/bin/crun", "runtime_version": "1.28", "runtime_args": [],
        "cell": "none", "cgroup": "", "policy": {},
    }  # fmt: skip
    return Owner(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes the record of a sandbox; returns its bundle."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "ocisbx" / "bundles").mkdir(parents=True, mode=0o700)

    def record(container_id: str, files: dict[str, str] | None = None, **changes: object) -> Path:
        if files is not None:
            cgroup = tmp_path / f"ocisbx-{container_id}"
            cgroup.mkdir()
            for name, text in files.items():
                (cgroup / name).write_text(text, encoding="ascii")
            changes["cgroup"] = str(cgroup)
        bundle = tmp_path / "ocisbx" / "bundles" / container_id
        bundle.mkdir()
        (bundle / "owner.json").write_text(owner(container_id, **changes).to_json())
        return bundle

    return record


def call(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = carry_out(["stats", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_rates_are_seconds_a_second() -> None:
    before = Counters(cpu_user_usec=1_000_000, cpu_system_usec=0, pressure_io_usec=7)
    now = Counters(cpu_user_usec=3_500_000, cpu_system_usec=500_000, pressure_io_usec=500_007)
    assert rates((10.0, before), (12.0, now)) == Rates(cpu=1.5, stalled_io=0.25)
    assert rates(None, (12.0, now)) == Rates()
    assert rates((12.0, before), (12.0, now)) == Rates()


counters = st.builds(Counters, *[st.none() | st.integers(0, 2**64) for _ in Counters._fields])
times = st.floats(0, 1e9)


@given(counters, counters, times, times)
def test_a_rate_is_known_when_both_samples_are(
    before: Counters, now: Counters, began: float, ended: float
) -> None:
    found = rates((began, before), (ended, now))
    halves = (*before[:2], *now[:2])
    assert (found.cpu is None) == (None in halves or ended <= began)
    assert all(rate is None or rate >= 0 for rate in found)


def test_live_owners_are_those_whose_driver_lives(make: Make) -> None:
    make("b002", pid=1)
    make("a003", name="three")
    make("c001")
    (make("d004") / "owner.json").write_text("{")
    assert [one.id for one in live_owners()] == ["c001", "a003"]


def test_a_sample_has_what_the_files_tell(make: Make) -> None:
    make("a001", FILES)
    make("a002")
    meter = Meter()
    first, second = meter.sample()
    assert (first.memory_limit_bytes, first.pids_limit) == (536870912, None)
    assert first.counters.memory_current_bytes == 12939428
    assert second.counters == Counters()
    assert first.rates == second.rates == Rates()
    assert [usage.rates.cpu for usage in meter.sample()] == [0.0, None]
    assert [usage.owner.id for usage in meter.sample({"a002"})] == ["a002"]
    assert [usage.rates.cpu for usage in meter.sample()] == [None, None]


SHOWN = """\
ID                    NAME      COMMAND                   CPU %   MEM / LIMIT            PIDS  \
IO R / W               STALLED CPU / MEM / IO
a001                  build     sleep 60                  150.0%  12.34 MiB / 512 MiB    3     \
4 KiB / 0 bytes        0% / 2% / 100%
a002                  -         python3 -c 'import os\\n…  -       -                      -     \
-                      -
"""


def usages(cgroup_counters: Counters) -> list[LiveUsage]:
    long = ["python3", "-c", "import os\nos.abort()"]
    stalls = Rates(1.5, 0.001, 0.02, 1.0)
    return [
        LiveUsage(0.5, owner("a001", name="build"), cgroup_counters, 536870912, None, stalls),
        LiveUsage(0.5, owner("a002", command=long), Counters(), None, None, Rates()),
    ]


USED = Counters(
    cpu_user_usec=2_000_000, memory_current_bytes=12939428, pids_current=3, io_read_bytes=4096,
    io_write_bytes=0,
)  # fmt: skip


def test_the_table() -> None:
    assert "".join(f"{line}\n" for line in table(usages(USED))) == SHOWN


def test_json_has_null_for_what_is_not_counted() -> None:
    some, none = (document(usage) for usage in usages(USED))
    assert some["at"] == "1970-01-01T00:00:00.500+00:00"
    assert some["cpu_percent"] == 150.0
    assert (some["cpu_user_s"], some["cpu_system_s"]) == (2.0, None)
    assert some["memory_limit_bytes"] == 536870912
    assert none.keys() == some.keys()
    known = {"at", "id", "command", "pressure"}
    assert {key for key in none if none[key] is not None} == known
    assert none["pressure"] == {"cpu_s": None, "memory_s": None, "io_s": None}


def test_lines_have_their_titles_once(capfd: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.show([])
    lines.show(usages(USED))
    lines.show(usages(USED))
    _, *rows = SHOWN.splitlines()
    assert capfd.readouterr().out.splitlines()[1:] == [*rows, *rows]


def everything_from(controller: int) -> str:
    """What was written to a terminal that nobody has open any more; it is read in parts."""
    data = bytearray()
    # EIO: its other end is closed, and nothing is left.
    with contextlib.suppress(OSError):
        while chunk := os.read(controller, 1 << 16):
            data += chunk
    os.close(controller)
    return data.decode()


def test_a_terminal_gets_one_table_in_its_place() -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 3, 80, 0, 0))
    stdout = os.dup(1)
    os.dup2(terminal, 1)
    try:
        screen = Screen()
        for shown in (usages(USED), usages(USED)[:1]):
            screen.show(shown)
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(terminal)
    text = everything_from(controller)
    titles, row, _ = (f"{line}\x1b[K\r\n" for line in SHOWN.splitlines())
    # Three lines of room, one of them for the cursor.
    assert text == (
        f"\x1b[?7l{titles}... and 2 more\x1b[K\r\n\x1b[J\x1b[?7h"
        f"\x1b[2F\x1b[?7l{titles}{row}\x1b[J\x1b[?7h"
    )


def test_once_as_json_lines(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    make("a001", FILES, name="build", command=["curl", "--password", "hidden"])
    make("a002")
    code, out, err = call(capfd, "--json", "--no-stream", "--interval", "0.1")
    assert (code, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    assert (first["id"], first["name"], first["memory_bytes"]) == ("a001", "build", 12939428)
    assert (first["cpu_percent"], second["cpu_percent"]) == (0.0, None)
    assert "hidden" not in out


def test_only_those_named(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    make("a001", FILES, name="build")
    make("a002")
    for given_name in ("build", "a001"):
        _, out, _ = call(capfd, "--json", "--no-stream", "--interval=0.1", given_name)
        assert [json.loads(line)["id"] for line in out.splitlines()] == ["a001"]


def test_the_stream_ends_with_the_last_of_those_named(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = make("a001", FILES)
    make("a002", FILES)
    timer = threading.Timer(0.5, (bundle / "owner.json").unlink)
    timer.start()
    code, out, _ = call(capfd, "--json", "--interval", "0.1", "a001")
    timer.join()
    assert code == 0
    assert len(out.splitlines()) >= 2


REFUSED = {
    "nobody": "'nobody' is not a container that runs",
    "--interval=0": "interval: '0' is not a duration",
    "--interval=0.01": "too short",
    "--interval=soon": "interval: 'soon' is not a duration",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_what_makes_no_sense_is_refused(
    make: Make, capfd: pytest.CaptureFixture[str], argument: str
) -> None:
    code, out, err = call(capfd, argument)
    assert (code, out) == (125, "")
    assert REFUSED[argument] in err
    assert "remedy: " in err
