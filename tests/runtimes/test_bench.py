"""`ocisbx bench` on what is here: few rounds, every part, and what is left afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ocisbx.bench.launchers import Job
from ocisbx.bench.processes import ASKED_S, held
from ocisbx.probe.machine import held_by
from tests.box import eventually, running
from tests.cgroups import ENTER, cgroup
from tests.command_line import environment, ocisbx, start
from tests.runtimes.conftest import NATIVE

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

__all__ = ["cgroup"]

# What is measured does not depend on the version; bare youki now and then hangs.
SOME = {name: one for one, name in reversed(NATIVE) if one.name in ("crun", "runc")}
EACH_NAME = {one.name: (one, name) for name, one in SOME.items()}


def on(count: int) -> pytest.MarkDecorator:
    """Boxes on so many runtimes, of one name one."""
    chosen = list(EACH_NAME.values())[:count]
    names = [name for _, name in chosen]
    return pytest.mark.parametrize("runtime", [one for one, _ in chosen], ids=names, indirect=True)


QUICK = ("--rounds", "2", "--batches", "1", "--idle", "2", "--concurrency", "2")
BENCH_S = 300.0


def bench(box: Box, *arguments: str) -> dict[str, Any]:
    """One run on the box's runtime, as JSON; nothing of it is left but the file."""
    temporary = box.base / "tmp"
    temporary.mkdir(exist_ok=True)
    line = ["bench", "--runtime", box.runtime.path, *QUICK, "--json", *arguments]
    done = ocisbx(box, *line, env={"TMPDIR": str(temporary)}, timeout=BENCH_S)
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    assert box.left() == []
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(found: dict[str, Any], part: str) -> dict[str, dict[str, Any]]:
    """By launcher's first word or two, of all sections of this part."""
    sections = [one for one in found["sections"] if one["part"] == part]
    return {row["launcher"].partition(",")[0]: row for one in sections for row in one["rows"]}


def bare_title(box: Box) -> str:
    return f"{box.runtime.name} {box.runtime.version.partition('-')[0]}"


def titles(box: Box) -> set[str]:
    return {"posix_spawn", bare_title(box), "ocisbx cold"}


@on(1)
@pytest.mark.slow
@pytest.mark.timeout(BENCH_S)
def test_every_part_on_the_runtime_of_the_box(box: Box) -> None:
    words = [word for name in ("cold", box.runtime.name) for word in ("--launcher", name)]
    found = bench(box, "--part", "all", "--workload", "true,files,output", *words)
    assert found["failures"] == []
    assert found["complete"]
    latency = rows(found, "latency")
    assert titles(box) <= set(latency)
    bare = latency[bare_title(box)]
    # A container costs more than a process, and less than ten seconds.
    assert bare["ratio"]["value"] > 1
    assert bare["p50_ms"] < 10_000
    assert latency["ocisbx cold"]["own_ms"] > 0
    assert latency["ocisbx cold"]["bare_ratio"]["value"] > 0
    assert all(row["calls_per_s"] > 0 for row in rows(found, "throughput").values())
    held = rows(found, "memory")
    assert held["posix_spawn"]["processes"] == 1
    assert held["ocisbx cold"]["processes"] >= 2


@on(1)
@pytest.mark.timeout(BENCH_S)
def test_without_a_filter(box: Box) -> None:
    found = bench(box, "--variant", "no-seccomp", "--workload", "true", "--launcher", "cold")
    assert titles(box) - {bare_title(box)} == set(rows(found, "latency"))


@on(1)
def test_what_a_launcher_cannot_do_is_told_and_the_others_go_on(box: Box, tmp_path: Path) -> None:
    """A runtime that is none is absent; a run of it alone has nothing to measure."""
    stranger = tmp_path / "crun"
    stranger.write_text("#!/bin/sh\necho crun version 1.99\n")
    stranger.chmod(0o755)
    done = ocisbx(box, "bench", "list", "--json", "--runtime", str(stranger))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "crun 1.99" in {one["launcher"] for one in found["absent"]}
    assert "posix_spawn" in {one["launcher"] for one in found["present"]}
    done = ocisbx(box, "bench", "--runtime", str(stranger), "--launcher", "crun")
    assert done.returncode == 125
    assert "no launcher here has 'crun' in its name" in done.stderr


@on(1)
@pytest.mark.timeout(BENCH_S)
def test_an_interrupted_run_leaves_its_samples_and_no_process(box: Box) -> None:
    file = box.base / "samples.jsonl"
    line = ["bench", "--runtime", box.runtime.path, "--launcher", "cold", "--workload", "true"]
    bench = start(box, *line, "--rounds", "100000", "--output", str(file))
    assert eventually(lambda: file.exists() and len(file.read_text().splitlines()) > 4, 60)
    bench.send_signal(2)
    _, said = bench.communicate(timeout=60)
    assert bench.returncode == 130, said
    assert box.left() == []
    assert eventually(lambda: not workers(box))
    done = ocisbx(box, "bench", "show", "--json", str(file))
    assert done.returncode == 0
    assert not json.loads(done.stdout)["complete"]


def workers(box: Box) -> list[int]:
    """Those of this box: others may measure on this machine, too."""
    found = []
    for pid in running("ocisbx.bench.worker"):
        with contextlib.suppress(OSError):
            if os.fsencode(box.run_directory) in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


@on(1)
def test_a_short_soak_leaves_nothing(box: Box, cgroup: str) -> None:
    # In a cgroup of its own: beside our own one other tests make theirs.
    (own := Path(cgroup, "driver")).mkdir()
    line = ["sh", "-c", ENTER, str(own)]
    line += [sys.executable, "-P", "-m", "benchmarks.soak", "--calls", "20"]
    done = subprocess.run(
        [*line, "--runtime", box.runtime.path],
        env={**environment(box), "TMPDIR": str(box.base)},
        capture_output=True,
        text=True,
        check=False,
    )
    (row,) = json.loads(done.stdout)["rows"]
    grown = row["grown"]
    del grown["rss_bytes"]
    assert not any(grown.values()), grown
    assert row["last"]["calls"]["n"] == 20
    assert len(done.stderr.splitlines()) > 2
    assert box.left() == []


def test_memory_is_that_of_a_family_and_of_nobody_else() -> None:
    mark = "8641357902468"
    argv = ["sh", "-c", "sleep 60.$0 & sleep 60 & wait", mark]
    with subprocess.Popen(argv) as shell, subprocess.Popen(["sleep", "60"]) as stranger:
        assert eventually(lambda: held_by(shell.pid, mark, "-").processes == 3)
        family = held_by(shell.pid, mark, "-")
        assert family.pss_bytes is not None
        assert 3 * 4096 < family.pss_bytes < 64 << 20
        # The shell has the mark among its arguments, and is one of those that are left out.
        assert held_by(shell.pid, mark, mark).processes == 2
        for child in psutil.Process(shell.pid).children():
            child.kill()
        shell.wait()
        assert held_by(stranger.pid, mark, "-").processes == 0
        stranger.kill()


def test_idle_launchers_that_do_not_hear_are_ended_together(tmp_path: Path) -> None:
    """One after the other, the worker would be killed before the last, and they would stay."""
    mark = "7531902468135"
    job = Job("unshare", "sh", None, "true", "default", str(tmp_path), str(tmp_path), 8, mark)
    deaf = ["/bin/sh", "-c", 'trap "" TERM; "$@" & wait', "sh"]
    with held(job, lambda _, payload: [*deaf, *payload]):
        started = time.monotonic()
    assert time.monotonic() - started < 2 * ASKED_S
    # Nor does what a launcher has left that was killed.
    assert eventually(lambda: running(f"86400.{mark}") == [])
