"""The example bundles: each config.json is what its case compiles to, and a good document."""

import json
from pathlib import Path

import pytest

from ocisbx.backends.lower import lower
from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.container.view import LISTED
from ocisbx.errors import Unsupported
from ocisbx.oci import Spec, lowest_version, violations
from ocisbx.plan import Plan
from ocisbx.result import EnforcementState
from ocisbx.specgen.build import build_spec
from tests.unit.oci.shared_spec import validator
from tools.example_bundles import (
    FOLDER,
    MADE_ROOT,
    compile_example,
    config_json,
    generate,
    names,
    pretty,
    read_example,
)

CASES = names()
# What one case says of itself; all others are called by an ordinary user, and enforce all.
ROOT_CASES = {"called-by-root", "called-by-root-old-runtime"}


def stored(name: str) -> str:
    return (FOLDER / name / "config.json").read_text()


def test_there_are_cases() -> None:
    assert len(CASES) >= 12
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_whole(name: str) -> None:
    files = {path.name for path in (FOLDER / name).iterdir()}
    assert files == {"README.md", "call.json", "config.json", "host.json", "sandbox.toml"}
    readme = (FOLDER / name / "README.md").read_text()
    assert readme.startswith("# ")
    assert len(readme.splitlines()) > 2
    assert (read_example(name).host.uid == 0) == (name in ROOT_CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_host_has_what_the_view_is_made_of(name: str) -> None:
    example = read_example(name)
    if example.config.rootfs in (None, "host"):
        assert set(LISTED) <= set(example.host.listings)


@pytest.mark.parametrize("name", CASES)
def test_config_json_is_what_the_case_compiles_to(name: str) -> None:
    assert json.loads(stored(name)) == json.loads(config_json(read_example(name)))


def test_stored_files_are_what_the_generator_writes() -> None:
    for path, text in generate(FOLDER.parent).items():
        assert path.read_text() == text


@pytest.mark.parametrize("name", CASES)
def test_config_json_is_a_good_document(name: str) -> None:
    document = json.loads(stored(name))
    assert violations(document, "config") == []
    spec = Spec.from_json(stored(name))
    assert spec.oci_version == lowest_version(spec)
    assert spec.to_dict() == document


@pytest.mark.parametrize("name", CASES)
def test_config_json_passes_the_schema_of_its_version(name: str) -> None:
    document = json.loads(stored(name))
    errors = validator(document["ociVersion"], "config").iter_errors(document)
    assert not [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", CASES)
def test_the_same_inputs_give_the_same_text(name: str) -> None:
    example = read_example(name)
    assert config_json(example) == config_json(example)


@pytest.mark.parametrize("name", CASES)
def test_a_filled_template_is_the_spec_itself(name: str) -> None:
    """What the hot path splices is what the models build."""
    example = read_example(name)
    plan = compile_example(example)
    root = plan.root_directory or MADE_ROOT
    argv = list(example.argv)
    environment = plan.payload_environment(example.environment)
    spec = build_spec(
        resolve(example.config, example.host),
        root=root,
        argv=argv,
        environment=environment,
        cgroup="/a/place",
    )
    text = plan.template.fill(root=root, argv=argv, environment=environment, cgroup="/a/place")
    assert spec.to_dict() == json.loads(text)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_survives_its_cache(name: str) -> None:
    plan = compile_example(read_example(name))
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("name", CASES)
def test_the_same_configuration_from_its_own_toml(name: str) -> None:
    example = read_example(name)
    again = SandboxConfig.from_toml(example.config.to_toml())
    assert again == example.config
    plan = compile_example(example)
    once_more = lower(again, resolve(again, example.host), example.host)
    assert once_more.shown == plan.shown
    assert once_more.nodes == plan.nodes


def test_limits_that_do_not_hold_are_said_and_refused_unless_allowed() -> None:
    example = read_example("limits-degraded")
    entries = resolve(example.config, example.host).enforcement
    states = {name: entries[name].state for name in ("memory", "pids", "rlimits")}
    assert states == {
        "memory": EnforcementState.UNSUPPORTED,
        "pids": EnforcementState.UNSUPPORTED,
        "rlimits": EnforcementState.ENFORCED,
    }
    with pytest.raises(Unsupported, match="memory cannot be enforced here"):
        resolve(example.config.updated({"allow_degraded": ["pids"]}), example.host)


def test_only_real_root_is_warned_of() -> None:
    warned = {name for name in CASES if compile_example(read_example(name)).warnings}
    assert warned == {"called-by-root-old-runtime"}


def test_json_for_reading_is_the_same_json() -> None:
    document = {
        "": [],
        "words": [f"word {number}" for number in range(40)],
        "objects": [{"key": number, "more": ["x" * 30] * number} for number in range(9)],
        "text": "line\nbreak \u00fc \u2028",
        "long": "x" * 300,
        "nested": {"deep": [[1, 2], [{"a": None}]], "true": True, "numbers": list(range(99))},
    }
    text = pretty(document)
    assert json.loads(text) == document
    assert max(map(len, text.splitlines())) < 320
    assert "\n  " in text


def test_a_missing_case_is_found(tmp_path: Path) -> None:
    assert set(generate(tmp_path)) == {
        tmp_path / "bundles" / "README.md",
        *(tmp_path / "bundles" / name / "config.json" for name in CASES),
    }
