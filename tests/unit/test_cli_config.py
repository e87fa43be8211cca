"""Options to SandboxConfig: each sets its field, over the file, which is over the preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.cli.options import parse
from ocisbx.cli.prepare import build_config, plan_for, read_host
from ocisbx.cli.run_options import RUN
from ocisbx.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from ocisbx.config import SandboxConfig


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCISBX_CONFIG", raising=False)
    monkeypatch.delenv("OCISBX_RUNTIME", raising=False)


def build(*arguments: str) -> SandboxConfig:
    return build_config(parse(RUN, [*arguments, "--", "true"]).options)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], {}),
        (["--preset", "yolo"], {"preset": "yolo"}),
        (["--runtime", "crun", "--runtime", "runc"], {"runtime": {"names": ["crun", "runc"]}}),
        (["--workspace", "/a b:ro"], {"workspace": "/a b:ro"}),
        (["-w", "/x"], {"workdir": "/x"}),
        (["--network", "host"], {"network": "host"}),
        (
            ["-m", "512M", "--memory-swap", "1g", "--cpus", "0.5", "--pids-limit", "9"],
            {"limits": {"memory_bytes": 512 << 20, "swap_bytes": 1 << 30, "cpus": 0.5, "pids": 9}},
        ),
        (["--cpuset-cpus", "3,0-1"], {"limits": {"cpuset": "0-1,3"}}),
        (
            [
                *("--device-read-bps", "/dev/sda:1mb", "--device-write-bps", "8:0:5k"),
                *("--device-read-iops", "/dev/sda:7", "--device-write-iops=/a:b:8"),
            ],
            {
                "limits": {
                    "io": {
                        "/a:b": {"write_iops": 8},
                        "/dev/sda": {"read_bps": 1 << 20, "read_iops": 7},
                        "8:0": {"write_bps": 5120},
                    }
                }
            },
        ),
        (["--ulimit", "nofile=5:6"], {"limits": {"rlimits": {"RLIMIT_NOFILE": [5, 6]}}}),
        (["--timeout", "1.5", "--grace", "0"], {"timeout_s": 1.5, "grace_s": 0.0}),
        (
            ["--max-output", "1k", "--on-output-limit", "kill"],
            {"capture": {"max_bytes": 1024, "on_limit": "kill"}},
        ),
        (["-t"], {"terminal": True}),
        (["-u", "1:2"], {"user": "1:2"}),
        (
            ["--isolation", "baseline", "--read-only", "--seccomp", "none"],
            {"isolation": {"level": "baseline", "seccomp": "none", "read_only_root": True}},
        ),
        (
            ["--cap-drop", "ALL", "--cap-add", "chown"],
            {"isolation": {"capabilities": ["-ALL", "+CAP_CHOWN"]}},
        ),
        (["--allow-degraded", "memory"], {"allow_degraded": ["memory"]}),
        (["--rootfs", "host"], {"rootfs": "host"}),
        (["--backend", "oci"], {"backend": "oci"}),
        (["--tmpfs", "/s:size=1M"], {"tmpfs": {"/s": 1 << 20}}),
        (["--mount", "type=tmpfs,dst=/s"], {"tmpfs": {"/s": "default"}}),
    ],
)
def test_each_option_sets_its_field(arguments: list[str], said: dict[str, Any]) -> None:
    assert build(*arguments).said() == {"preset": "coding-agent"} | said


def test_volumes_and_mounts_are_one_list() -> None:
    config = build("-v", "/opt/go:ro", "--mount", 'type=bind,"src=/a,b",dst=/c,ro')
    assert [(v.source, v.target, v.read_only) for v in config.volumes] == [
        ("/opt/go", "/opt/go", True),
        ("/a,b", "/c", True),
    ]


def test_relative_files_are_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = build("--rootfs", "root", "--seccomp", "profile.json")
    assert config.rootfs == f"{tmp_path}/root"
    assert config.isolation.seccomp == f"{tmp_path}/profile.json"


def test_options_over_the_file_over_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.toml"
    path.write_text(
        'preset = "balanced"\nnetwork = "none"\ntimeout_s = 5\nvolumes = ["/a"]\n'
        'allow_degraded = ["pids"]\n[limits]\nmemory_bytes = "1g"\npids = 7\n'
        '[isolation]\ncapabilities = ["CHOWN", "KILL"]\n'
    )
    config = build(
        *("--config", str(path), "--timeout", "9", "-v", "/b:ro", "-m", "2g"),
        *("--allow-degraded", "memory", "--cap-drop", "KILL", "--cap-add", "FOWNER"),
    )
    assert config.said() == {
        "preset": "balanced",
        "network": "none",
        "timeout_s": 9.0,
        "volumes": [
            {"source": "/a", "target": "/a"},
            {"source": "/b", "target": "/b", "read_only": True},
        ],
        "allow_degraded": ["pids", "memory"],
        "limits": {"memory_bytes": 2 << 30, "pids": 7},
        "isolation": {"capabilities": ["CAP_CHOWN", "CAP_FOWNER"]},
    }


def test_the_environment_names_file_and_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sandbox.toml"
    path.write_text('network = "host"\n[runtime]\nnames = ["youki"]\n')
    monkeypatch.setenv("OCISBX_CONFIG", str(path))
    monkeypatch.setenv("OCISBX_RUNTIME", "runc, crun")
    assert build().network == "host"
    assert build().runtime.names == ("runc", "crun")
    assert build("--runtime", "auto").runtime.names == ("auto",)


def test_limits_of_disks_are_added_to_the_files(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.toml"
    path.write_text('[limits.io."8:0"]\nread_bps = 5\n[limits.io."/srv"]\nweight = 9\n')
    config = build("--config", str(path), "--device-write-bps", "8:0:6")
    assert config.said()["limits"] == {
        "io": {"/srv": {"weight": 9}, "8:0": {"read_bps": 5, "write_bps": 6}}
    }


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--device-read-bps", text] for text in ("8:0", "sda:1M", "/dev/sda", "/dev/sda:", ":5")),
        ["--device-read-bps", "/dev/sda:0"],
        ["--device-read-iops", "/dev/sda:1k"],
        ["--cpuset-cpus", "3-1"],
        ["--cpus", "nan"],
        ["-m", "0"],
        ["-m", "512X"],
        ["--pids-limit", "0"],
        ["--preset", "nope"],
        ["--config", "/nonexistent.toml"],
        ["-v", "relative"],
        ["--workspace", "relative"],
        ["--tmpfs", "relative"],
        ["--mount", "type=volume,src=x,dst=/y"],
        ["-m", "lots"],
        ["--ulimit", "nofile"],
        ["--timeout", "0"],
        ["--network", "bridge"],
        ["--cap-add", "CAP_NOPE"],
        ["--runtime", "docker"],
        ["--allow-degraded", "everything"],
        ["-u", "root"],
    ],
)
def test_wrong_values_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        build(*arguments)


def test_a_described_host_has_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    for text in ("", "[]", '{"machine": 3}', "{}"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="does not describe a host"):
            read_host(str(path))


def test_a_described_host_has_to_know_the_paths(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(
        '{"machine": "x86_64", "kernel": "6.1.0", "uid": 1000, "gid": 1000, "home": "/home/u",'
        ' "cwd": "/home/u/w", "runtimes": [{"name": "crun", "path": "/usr/bin/crun",'
        ' "version": "1.20"}]}'
    )
    with pytest.raises(ConfigError, match="the host of --host does not tell about"):
        plan_for(build(), read_host(str(path)))
