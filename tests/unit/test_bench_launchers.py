"""The table of launchers, and what each is told."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from ocisbx.bench.bare import placed, without_init
from ocisbx.bench.found import ROWS
from ocisbx.bench.launchers import REFERENCE, VARIANTS, Job, Row, Target
from ocisbx.bench.measure import Settings, sections
from ocisbx.bench.peers import (
    bwrap_argv,
    docker_argv,
    firejail_argv,
    nspawn_argv,
    podman_argv,
    spawn_argv,
    srt_argv,
    unshare_argv,
)
from ocisbx.bench.workloads import WORKLOADS
from ocisbx.config import SandboxConfig
from ocisbx.specgen.mounts import INIT_TARGET
from tests.meta.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PAYLOAD = ["/usr/bin/sh", "-c", "a 'b'"]
ARGVS = [
    bwrap_argv, docker_argv, firejail_argv, nspawn_argv, podman_argv, spawn_argv, unshare_argv,
]  # fmt: skip


def job(scratch: Path, variant: str = "default") -> Job:
    return Job("row", "/bin/launcher", None, "true", variant, "/tmp/ws", str(scratch))


@pytest.mark.parametrize("target", [None, Target("runsc", "/r", "1", "ptrace")])
def test_a_job_reaches_its_worker_as_it_is(tmp_path: Path, target: Target | None) -> None:
    sent = job(tmp_path)._replace(target=target, lanes=3, mark="7")
    assert Job.from_json(sent.to_json()) == sent


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_tells_its_configuration(row: Row) -> None:
    assert row.words
    assert "default" in row.variants <= set(VARIANTS)


def test_the_reference_takes_part_everywhere() -> None:
    assert all(
        ROWS[REFERENCE].takes(workload, variant) for workload in WORKLOADS for variant in VARIANTS
    )


@pytest.mark.parametrize("argv", ARGVS, ids=lambda argv: argv.__name__)
def test_the_payload_stands_whole_at_the_end(
    tmp_path: Path, argv: Callable[[Job, Sequence[str]], list[str]]
) -> None:
    words = argv(job(tmp_path), PAYLOAD)
    assert words[-len(PAYLOAD) :] == PAYLOAD
    assert len(words) == len(PAYLOAD) or words[0] == "/bin/launcher"


def test_a_launcher_that_has_a_shell_gets_one_word(tmp_path: Path) -> None:
    assert shlex.split(srt_argv(job(tmp_path), PAYLOAD)[-1]) == PAYLOAD


def test_variants_are_told(tmp_path: Path) -> None:
    plain, free, limited = (
        docker_argv(job(tmp_path, variant=variant), PAYLOAD) for variant in VARIANTS
    )
    assert "seccomp=unconfined" in free
    assert "seccomp=unconfined" not in plain
    assert limited[limited.index("--memory") + 1] == str(512 << 20)
    assert "--seccomp" in firejail_argv(job(tmp_path), PAYLOAD)
    assert "--seccomp" not in firejail_argv(job(tmp_path, variant="no-seccomp"), PAYLOAD)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_a_configuration(tmp_path: Path, variant: str) -> None:
    fields = job(tmp_path, variant=variant)._replace(target=Target("crun", "/c", "1")).fields
    config = SandboxConfig(**fields)
    assert config.runtime.names == ("/c",)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("bundles/*/config.json")), ids=lambda p: p.parent.name
)
def test_a_bare_bundle_differs_by_the_init_alone(path: Path) -> None:
    document = json.loads(path.read_text())
    bare = placed(without_init(json.loads(path.read_text())), "/bundle")
    words = document["process"]["args"]
    assert bare["process"]["args"] == words[words.index("--") + 1 :]
    kept = [one for one in document["mounts"] if one["destination"] != INIT_TARGET]
    assert [one["destination"] for one in bare["mounts"]] == [one["destination"] for one in kept]
    for mount in bare["mounts"]:
        assert mount["source"].startswith("/") or mount["type"] != "bind"
    del document["process"]["args"], bare["process"]["args"], document["mounts"], bare["mounts"]
    assert bare == document


def test_sections_are_what_was_asked_for() -> None:
    settings = Settings(
        parts=("memory", "latency", "throughput"),
        workloads=("sh", "true"),
        variants=("default", "limits"),
        concurrency=(1, 4),
        rounds=1,
        warm_up=0,
        batch_s=0.1,
        batch_rounds=1,
        idle=3,
        seed=0,
    )
    assert sections(settings) == [
        ("latency", "sh", "default", 1),
        ("latency", "sh", "limits", 1),
        ("latency", "true", "default", 1),
        ("latency", "true", "limits", 1),
        ("throughput", "true", "default", 1),
        ("throughput", "true", "default", 4),
        ("memory", "true", "default", 3),
    ]
