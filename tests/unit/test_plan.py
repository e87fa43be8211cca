"""Templates: a value of the caller's is never taken for a slot, and always arrives as it is."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.backends.lower import lower, make_template
from ocisbx.config import SandboxConfig
from ocisbx.container.resolve import resolve
from ocisbx.plan import SLOTS, Guard, Plan, Template, all_hold, fingerprint
from tests.unit.hosts import make_host

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = SandboxConfig(workspace="/srv/work", annotations={"label.example": "args env id root"})
HOST = make_host()
CONTAINER = resolve(CONFIG, HOST)
PLAN = lower(CONFIG, CONTAINER, HOST)

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40)
LOOKS = (*SLOTS, '"', '\\"', ":args", "{}", "[]", "\\u0000")
SLOT_LIKE = st.sampled_from([*PLAN.template.parts, *LOOKS])
WORDS = st.lists(TEXT | SLOT_LIKE, min_size=1, max_size=5)


@given(argv=WORDS, environment=WORDS, root=TEXT)
def test_values_arrive_as_they_are(argv: list[str], environment: list[str], root: str) -> None:
    text = PLAN.template.fill(root=root, argv=argv, environment=environment)
    config = json.loads(text)
    init, *rules = config["process"]["args"][: -len(argv)]
    paths = CONTAINER.confinement.writable_paths or ()
    assert (init, rules) == ("/.ocisbx/init", [w for p in paths for w in ("-w", p)] + ["--"])
    assert config["process"]["args"][-len(argv) :] == argv
    assert config["process"]["env"] == environment
    assert config["root"]["path"] == root


@given(argv=WORDS, environment=WORDS)
def test_nothing_else_changes(argv: list[str], environment: list[str]) -> None:
    plain = json.loads(PLAN.template.fill(root="r", argv=["x"], environment=["y"]))
    other = json.loads(PLAN.template.fill(root="r", argv=argv, environment=environment))
    for document in (plain, other):
        del document["process"]["args"], document["process"]["env"]
    assert plain == other


def test_every_template_has_its_own_marks() -> None:
    """Nobody can guess a mark, so no value can be one; and none of them stays behind."""
    one, other = make_template(CONTAINER), make_template(CONTAINER)
    assert one == other
    assert set(one.slots) <= set(SLOTS)
    assert {"args", "env", "root"} <= set(one.slots)


def test_slots_may_repeat() -> None:
    template = Template(("<", "|", ">"), ("cgroup", "cgroup"))
    assert template.fill(root="r", argv=["a"], environment=["e"], cgroup="/x") == '<"/x"|"/x">'


def test_plans_survive_the_disk() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN


@given(st.text(max_size=50))
def test_a_damaged_plan_is_none(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Plan.from_json(text)


def test_the_environment_of_the_call() -> None:
    lines = PLAN.payload_environment({"LANG": "C", "SECRET": "x", "LD_PRELOAD": "y"})
    names = [line.split("=")[0] for line in lines]
    assert "LANG" in names
    assert not {"SECRET", "LD_PRELOAD"} & set(names)
    assert len(names) == len(set(names))


def test_guards_see_changes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    missing = Guard(str(path), sight="content", seen=fingerprint(str(path), "content"))
    assert all_hold([missing])
    path.write_text("one")
    assert not all_hold([missing])
    exact = Guard(str(path), sight="content", seen=fingerprint(str(path), "content"))
    identity = Guard(str(path), sight="identity", seen=fingerprint(str(path), "identity"))
    path.write_text("longer")
    assert not all_hold([exact])
    assert all_hold([identity])
    path.unlink()
    path.mkdir()
    assert not all_hold([identity])


def test_a_guard_sees_that_there_are_fewer_processors() -> None:
    before = os.sched_getaffinity(0)
    guard = Guard("/sys", sight="processors", seen=fingerprint("/sys", "processors"))
    assert all_hold([guard])
    try:
        os.sched_setaffinity(0, {max(before)})
        assert all_hold([guard]) is (len(before) == 1)
    finally:
        os.sched_setaffinity(0, before)
    assert all_hold([guard])
