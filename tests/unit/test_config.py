"""SandboxConfig: what it takes, its normal form, and its messages."""

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from ocisbx import Sandbox, Session
from ocisbx.config import Capture, Env, Isolation, Limits, Runtime, SandboxConfig, Volume
from ocisbx.errors import ConfigError
from ocisbx.presets import ISOLATION_LEVELS, PRESETS
from ocisbx.quantities import UNLIMITED


def refused(**fields: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        SandboxConfig(**fields)
    return str(caught.value)


def test_nothing_said_is_nothing_decided() -> None:
    config = SandboxConfig()
    assert config.preset == "coding-agent"
    assert config.said() == {"preset": "coding-agent"}
    assert SandboxConfig(volumes=[], env={}, tmpfs={}) == config


def test_keywords_of_the_interface() -> None:
    config = SandboxConfig(timeout_s=30, volumes=["/opt/go:ro"], limits={"memory_bytes": "512M"})
    assert config.timeout_s == 30.0
    assert config.volumes == (Volume(source="/opt/go", target="/opt/go", read_only=True),)
    assert config.limits == Limits(memory_bytes=512 << 20)


def test_dotted_names() -> None:
    dotted = SandboxConfig(**{"limits.pids": 5, "limits.cpus": "0.5", "env.set": {"A": "1"}})
    assert dotted == SandboxConfig(limits={"pids": 5, "cpus": 0.5}, env={"set": {"A": "1"}})
    message = refused(**{"limits.pids": 5, "limits": {"pids": 6}})
    assert message == "limits.pids and limits cannot be given together"
    assert refused(**{"limitz.pids": 5}).startswith("'limitz.pids': unknown field")


def test_tables_as_models() -> None:
    config = SandboxConfig(
        env=Env(set={"A": "1"}),
        capture=Capture(max_bytes=3),
        isolation=Isolation(level="baseline"),
        runtime=Runtime(names=("crun",)),
        volumes=[Volume(source="/a", target="/b")],
    )
    assert config.said() == {
        "preset": "coding-agent",
        "volumes": [{"source": "/a", "target": "/b"}],
        "env": {"set": {"A": "1"}},
        "capture": {"max_bytes": 3},
        "isolation": {"level": "baseline"},
        "runtime": {"names": ["crun"]},
    }


NORMAL_FORMS: list[tuple[str, Any, Any]] = [
    ("limits.memory_bytes", "1.5G", 3 << 29),
    ("limits.memory_bytes", "unlimited", UNLIMITED),
    ("limits.swap_bytes", "-1", UNLIMITED),
    ("limits.cpus", "2", 2.0),
    ("limits.cpus", "unlimited", -1.0),
    ("limits.pids", "64", 64),
    ("limits.cpu_weight", 100, 100),
    ("limits.rlimits", {"nofile": 9, "core": [0, "unlimited"]},
     {"RLIMIT_CORE": (0, UNLIMITED), "RLIMIT_NOFILE": (9, 9)}),
    ("capture.max_bytes", "1k", 1024),
    ("isolation.capabilities", ["kill", "CAP_CHOWN"], ("CAP_KILL", "CAP_CHOWN")),
    ("isolation.capabilities", ["+kill"], ("+CAP_KILL",)),
    ("isolation.capabilities", [], ()),
    ("isolation.masked_paths", [], ()),
    ("isolation.seccomp", Path("/p.json"), "/p.json"),
    ("runtime.names", ["/opt/bin/crun", "runc"], ("/opt/bin/crun", "runc")),
    ("tmpfs", ["/b", "/a:size=1k"], {"/a": 1024, "/b": None}),
    ("tmpfs", {"/a": "1k", "/b": "default"}, {"/a": 1024, "/b": None}),
    ("user", 1000, "1000"),
    ("user", "0:0", "0:0"),
    ("workspace", Path("/w"), "/w"),
    ("workspace", "/w:ro", "/w:ro"),
    ("rootfs", "host", "host"),
    ("rootfs", "/srv/root", "/srv/root"),
    ("filesystem.deny_read", ["**/.env"], ("**/.env",)),
    ("allow_degraded", ["memory", "all"], ("memory", "all")),
]  # fmt: skip


@pytest.mark.parametrize(("field", "given", "expected"), NORMAL_FORMS)
def test_normal_form(field: str, given: object, expected: object) -> None:
    table, _, name = field.rpartition(".")
    config = SandboxConfig(**{field: given})
    assert getattr(getattr(config, table) if table else config, name) == expected
    assert SandboxConfig.from_toml(config.to_toml()) == config
    assert SandboxConfig.from_json(config.to_json()) == config


def test_io_limits() -> None:
    config = SandboxConfig(limits={"io": {"8:0": {"read_bps": "10M"}, "/data": {"write_iops": 5}}})
    assert config.limits.io["8:0"].read_bps == 10 << 20
    assert list(config.limits.io) == ["/data", "8:0"]
    assert SandboxConfig.from_toml(config.to_toml()) == config


REFUSED: list[tuple[str, Any, str]] = [
    ("networks", "none", "networks: unknown field (did you mean 'network'?)"),
    ("memory", 1, "memory: unknown field (did you mean 'limits.memory_bytes'?)"),
    ("limits.memory", 1, "limits.memory: unknown field (did you mean 'limits.memory_bytes'?)"),
    ("self", 1, "self: unknown field"),
    ("network", "hots",
     "network: 'hots' is not known: expected one of none, host (did you mean 'host'?)"),
    ("preset", "yol", ("preset: 'yol' is not a preset: expected one of coding-agent, balanced, "
     "locked-down, yolo (did you mean 'yolo'?)")),
    ("limits", 3, "limits: 3 is not a table"),
    ("volumes", "/a", "volumes: '/a' is not a list"),
    ("volumes", [{"target": "/a"}], "volumes[0].source: missing"),
    ("volumes", [{"source": "/a", "ro": True}],
     "volumes[0].ro: unknown field"),
    ("volumes", ["a"], ("volumes[0]: 'a' is not a volume's source: it is relative; "
     "expected an absolute path, such as /opt/go")),
    ("terminal", 1, "terminal: 1 is not true or false"),
    ("terminal", "yes", "terminal: 'yes' is not true or false"),
    ("env", {"set": {"PORT": 8080}}, ("env.set.PORT: 8080 is not a text: "
     "expected a text, not int")),
    ("env", {"set": {"A=B": "x"}}, ("env.set.'A=B': 'A=B' is not a variable's name: it contains "
     "'='; expected a name such as PATH")),
    ("env", {"inherit": [""]}, ("env.inherit[0]: '' is not a variable's name: it is empty; "
     "expected a name such as PATH")),
    ("limits.memory_bytes", "12x", ("limits.memory_bytes: '12x' is not a size: expected bytes or "
     "a size such as 512M, 2g, 64k, 1.5GiB (powers of 1024)")),
    ("limits.pids", 0, "limits.pids: 0 is not a limit of processes: expected 1 to 4194304"),
    ("limits", {"io": {"/d": {"read_bp": 1}}},
     "limits.io.'/d'.read_bp: unknown field (did you mean 'limits.io.read_bps'?)"),
    ("limits", {"memory_bytes": "2g", "swap_bytes": "1g"}, ("limits: swap_bytes counts memory and "
     "swap together: it is below memory_bytes")),
    ("limits", {"swap_bytes": "1g"},
     "limits: swap_bytes counts memory and swap together: give memory_bytes too"),
    ("workdir", "work", ("workdir: 'work' is not a path: it is relative; expected an absolute "
     "path, such as /opt/go")),
    ("image", "", "image: '' is not a reference: it is empty"),
    ("workspace", "a\0", "workspace: 'a\\x00' is not a text: it contains a NUL character"),
    ("hostname", "a\ud800", ("hostname: 'a\\ud800' is not a text: it is not valid UTF-8, so it "
     "cannot be written to config.json")),
    ("limits.pids", 10**5000, "limits.pids: a huge int is beyond 64 bits"),
    ("annotations", {"run.oci.handler": "krun"}, ("annotations: 'run.oci.handler' is not an "
     "annotation that a caller may set: only keys below label., org.opencontainers.image., "
     "com.example. steer no runtime")),
    ("commands", {"deny": ["git 'push"]}, ("commands.deny[0]: \"git 'push\" is not a command "
     "pattern: no closing quotation")),
    ("commands", {"allow": ["bin/x"]}, ("commands.allow[0]: 'bin/x' is not a command pattern: "
     "expected a program's name, such as curl, or an absolute path")),
    ("annotations", {"label.a": 1}, ("annotations: 1 is not an annotation's value: expected a "
     "text, not int")),
]  # fmt: skip


@pytest.mark.parametrize(("field", "given", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(field: str, given: object, message: str) -> None:
    assert refused(**{field: given}) == message


def test_each_problem_has_its_line() -> None:
    message = refused(timeout_s=-1, networks="none", env={"set": {"=": "1"}}, user="me")
    lines = message.splitlines()
    assert lines[0] == "the configuration has 4 problems:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "timeout_s",
        "user",
        "env.set.'='",
        "networks",
    ]


def test_remedy_of_a_parser_is_kept() -> None:
    with pytest.raises(ConfigError) as caught:
        SandboxConfig(user="me")
    assert "id -u NAME" in caught.value.remedy
    assert caught.value.__suppress_context__


def test_tables_built_alone_refuse_alike() -> None:
    with pytest.raises(ConfigError, match="pids: 0 is not a limit of processes"):
        Limits(pids=0)
    with pytest.raises(ConfigError, match="target: missing"):
        Volume(source="/a")  # type: ignore[call-arg]


def test_model_validate_refuses_alike() -> None:
    with pytest.raises(ConfigError, match="networks: unknown field"):
        SandboxConfig.model_validate({"networks": 1})


def test_frozen_to_the_bottom() -> None:
    config = SandboxConfig(env={"set": {"A": "1"}}, volumes=["/a"])
    with pytest.raises(ValidationError):
        config.preset = "yolo"  # type: ignore[misc]
    with pytest.raises(TypeError, match="frozen configuration"):
        config.env.set["A"] = "2"  # type: ignore[index]
    assert hash(config) == hash(SandboxConfig(env={"set": {"A": "1"}}, volumes=["/a"]))


def test_copies_and_pickles() -> None:
    config = SandboxConfig(env={"set": {"A": "1"}}, tmpfs=["/a"], **{"limits.pids": 4})
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 -- our own bytes
    assert copy.deepcopy(config) == config


def test_dump_is_the_same_for_any_order() -> None:
    one = SandboxConfig(env={"set": {"A": "1", "B": "2"}}, tmpfs=["/a", "/b"])
    two = SandboxConfig(tmpfs=["/b", "/a"], env={"set": {"B": "2", "A": "1"}})
    assert one.model_dump_json() == two.model_dump_json()
    assert SandboxConfig.model_validate_json(one.model_dump_json()) == one


def test_updated_merges_tables_and_replaces_the_rest() -> None:
    config = SandboxConfig(env={"set": {"A": "1", "B": "1"}}, volumes=["/a"], timeout_s=5)
    changed = config.updated({"env": {"set": {"B": "2"}}, "volumes": ["/b"], "limits.pids": 7})
    assert changed == SandboxConfig(
        env={"set": {"A": "1", "B": "2"}}, volumes=["/b"], timeout_s=5, limits={"pids": 7}
    )


def test_part_of_a_users_model() -> None:
    class Task(BaseModel):
        sandbox: SandboxConfig

    assert Task.model_validate({"sandbox": {"timeout_s": 3}}).sandbox.timeout_s == 3.0


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_in_normal_form(name: str) -> None:
    preset = PRESETS[name]
    config = SandboxConfig(preset=name, **preset.fields)
    dumped = config.model_dump(exclude_defaults=True)
    dumped.pop("preset", None)
    assert dumped == preset.fields
    assert preset.description
    assert preset.opens


def test_the_default_preset_is_closed() -> None:
    fields = PRESETS["coding-agent"].fields
    assert fields["network"] == "none"
    assert fields["isolation"] == {"level": "restricted"}


@pytest.mark.parametrize("name", ISOLATION_LEVELS)
def test_levels_fill_the_table(name: str) -> None:
    level = ISOLATION_LEVELS[name]._asdict()
    level.pop("description")
    assert level.pop("landlock") is (name == "restricted")
    table = Isolation(**{"level": name, **level})
    assert set(level) | {"level"} == set(Isolation.model_fields)
    assert all(getattr(table, field) == value for field, value in level.items())


def test_levels_are_ordered() -> None:
    weak, middle, strong = ISOLATION_LEVELS.values()
    assert weak.capabilities == ("ALL",)
    assert set(strong.capabilities) < set(middle.capabilities)
    assert set(weak.masked_paths) < set(middle.masked_paths) < set(strong.masked_paths)
    assert (weak.no_new_privileges, strong.no_new_privileges) == (False, True)


@pytest.mark.parametrize("seconds", ["x", -1, 0, math.nan, True])
def test_a_time_that_is_none(seconds: Any) -> None:
    for make in (Sandbox, Session):
        with pytest.raises(ConfigError, match="is not a duration"):
            make(start_timeout_s=seconds)
    for name in ("idle_s", "lifetime_s"):
        with pytest.raises(ConfigError, match="is not a duration"):
            Session(**{name: seconds})
