"""Hypothesis against the configuration: only ConfigError comes out; valid ones round-trip."""

import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from ocisbx import schemas
from ocisbx.capabilities import CAPABILITIES
from ocisbx.config import SandboxConfig
from ocisbx.config_errors import field_paths
from ocisbx.errors import ConfigError
from ocisbx.presets import PRESETS
from ocisbx.quantities import RLIMITS, show_cpuset

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
LEAVES = (
    ANY_TEXT
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.sampled_from(["/a", "512M", "-1", "unlimited", "none", "host", ":ro", 1 << 65])
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({path.split(".")[0] for path in field_paths(SandboxConfig)})
INNER = sorted({path.rpartition(".")[2] for path in field_paths(SandboxConfig)})
DOCUMENTS = st.dictionaries(
    st.sampled_from(FIELDS) | ANY_TEXT,
    TREES | st.dictionaries(st.sampled_from(INNER) | ANY_TEXT, TREES, max_size=4),
    max_size=5,
)


def outcome(build: Any, source: object) -> str:
    try:
        build(source)
    except ConfigError as error:
        # What cannot be encoded cannot be printed either.
        return error.render().encode().decode()
    return ""


@given(DOCUMENTS)
def test_hostile_documents(document: dict[str, Any]) -> None:
    message = outcome(SandboxConfig.build, document)
    assert all(line.isprintable() for line in message.splitlines())


@given(DOCUMENTS)
def test_hostile_keywords(document: dict[str, Any]) -> None:
    outcome(lambda fields: SandboxConfig(**fields), document)


@given(TREES)
def test_hostile_json(document: object) -> None:
    outcome(SandboxConfig.from_json, json.dumps(document))


@given(ANY_TEXT | st.text("[]{}=\"'.,#\n \\u0Dabc-:TZ"))
def test_hostile_text(text: str) -> None:
    outcome(SandboxConfig.from_toml, text)
    outcome(SandboxConfig.from_json, text)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
PATH = TEXT.map(lambda text: f"/{text}")
NAME = TEXT.filter(lambda text: text != "" and "=" not in text)
SIZE = st.integers(1 << 20, 1 << 60) | st.integers(1, 999).map(lambda size: f"{size}M")
LIMIT = SIZE | st.just("unlimited")
CAPABILITY_LISTS = st.lists(st.sampled_from(CAPABILITIES)) | st.lists(
    st.sampled_from([f"{sign}{name}" for sign in "+-" for name in (*CAPABILITIES, "ALL")])
)
COMMAND = st.sampled_from(["rm", "git push", "/usr/bin/curl *", "'a b' -[xy]"])
RLIMIT = st.tuples(st.integers(0, 99), st.integers(100, 999)).map(list) | st.integers(0, 9)


def table(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


IO = table(read_bps=SIZE, write_iops=st.integers(1, (1 << 32) - 1), weight=st.integers(1, 10_000))
VOLUME = st.fixed_dictionaries(
    {"source": PATH}, optional={"target": PATH, "read_only": st.booleans()}
)
VALID = table(
    preset=st.sampled_from(list(PRESETS)),
    backend=st.sampled_from(["auto", "oci", "podman"]),
    image=TEXT.filter(bool),
    workspace=st.just("none") | PATH | PATH.map(lambda path: f"{path}:ro"),
    volumes=st.lists(st.sampled_from(["/a", "/a:ro", "/a:/b:rw"]) | VOLUME, max_size=3),
    tmpfs=st.dictionaries(PATH, SIZE | st.just("default"), max_size=3),
    rootfs=st.just("host") | PATH,
    workdir=PATH,
    timeout_s=st.floats(0.001, 1e6) | st.integers(1, 100),
    grace_s=st.floats(0, 100),
    user=st.sampled_from(["0", "1000:1000", 5]),
    hostname=st.from_regex(r"[a-z]{1,9}(-[a-z]{1,9})?", fullmatch=True),
    network=st.sampled_from(["none", "host"]),
    terminal=st.booleans(),
    allow_degraded=st.lists(st.sampled_from(["memory", "all"])),
    annotations=st.dictionaries(
        st.from_regex(r"label\.[a-z]{1,9}", fullmatch=True), TEXT.filter(str.isprintable)
    ),
    commands=table(allow=st.lists(COMMAND, max_size=2), deny=st.lists(COMMAND, max_size=2)),
    concurrency=table(max=st.integers(1, 1 << 22) | st.just("unlimited"), wait_s=st.floats(0, 1e6)),
    env=table(inherit=st.lists(NAME), set=st.dictionaries(NAME, TEXT), unset=st.lists(NAME)),
    limits=table(
        memory_bytes=LIMIT,
        cpus=st.floats(0.01, 64) | st.just("unlimited"),
        cpu_weight=st.integers(1, 10_000),
        cpuset=st.sets(st.integers(0, 8191), min_size=1).map(show_cpuset),
        memory_high_bytes=LIMIT,
        pids=st.integers(1, 1 << 20) | st.just("unlimited"),
        io=st.dictionaries(PATH | st.just("8:0"), IO.filter(bool)),
        rlimits=st.dictionaries(st.sampled_from(list(RLIMITS)), RLIMIT),
    ),
    capture=table(
        max_bytes=SIZE, on_limit=st.sampled_from(["truncate", "kill"]), combine=st.booleans()
    ),
    isolation=table(
        level=st.sampled_from(["privileged", "baseline", "restricted"]),
        capabilities=CAPABILITY_LISTS,
        seccomp=st.sampled_from(["none", "default"]) | PATH,
        no_new_privileges=st.booleans(),
        masked_paths=st.lists(PATH, max_size=2),
        read_only_root=st.booleans(),
    ),
    filesystem=table(deny_read=st.lists(PATH, max_size=2)),
    runtime=table(
        names=st.lists(st.sampled_from(["crun", "strongest"]) | PATH),
        platform=st.sampled_from(["kvm", "auto"]),
    ),
)
SCHEMA = jsonschema.Draft202012Validator(schemas.schema("sandbox"))


@settings(max_examples=150, deadline=None)
@given(VALID)
def test_valid_documents_round_trip(document: dict[str, Any]) -> None:
    SCHEMA.validate(document)
    config = SandboxConfig.build(document)
    SCHEMA.validate(config.said())
    SCHEMA.validate(config.model_dump(mode="json"))
    assert SandboxConfig.from_toml(config.to_toml()) == config
    assert SandboxConfig.from_json(config.to_json()) == config
    assert SandboxConfig.model_validate_json(config.model_dump_json()) == config
    again = SandboxConfig.from_toml(config.to_toml())
    assert again.model_dump_json() == config.model_dump_json()


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS)
def test_what_is_accepted_fits_the_schema(document: dict[str, Any]) -> None:
    if outcome(SandboxConfig.build, document):
        return
    dotted = any("." in name for name in document)
    assert dotted or SCHEMA.is_valid(document)
