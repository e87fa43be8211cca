"""Children: within their parent's limits, ended by it, and with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ocisbx
from ocisbx import Container
from ocisbx.bundle.record import State
from ocisbx.quantities import UNLIMITED
from ocisbx.session.bounds import NUMBERS, limits_within, seconds_within
from tests.box import eventually

if TYPE_CHECKING:
    from ocisbx.config import Limits
    from tests.box import Box


amounts = st.one_of(st.none(), st.just(UNLIMITED), st.integers(1 << 20, 1 << 40))
small = st.one_of(st.none(), st.just(UNLIMITED), st.integers(1, 1000))
limits = st.fixed_dictionaries(
    {},
    optional={name: small if name in ("cpus", "pids") else amounts for name in NUMBERS},
)


def built(fields: dict[str, object]) -> Limits | None:
    """None: such limits are refused for a reason of their own."""
    try:
        return ocisbx.SandboxConfig(limits=fields).limits
    except ocisbx.ConfigError:
        return None


def worth(value: object) -> float:
    """No limit is as much as there is."""
    return float("inf") if value in (None, UNLIMITED) else float(value)  # type: ignore[arg-type]


@given(limits, limits)
def test_a_child_never_has_more_than_its_parent(
    above: dict[str, object], below: dict[str, object]
) -> None:
    parent, child = built(above), built(below)
    if parent is None or child is None:
        return
    try:
        found = limits_within(parent, child)
    except ocisbx.PolicyDenied:
        asked = [name for name in NUMBERS if getattr(child, name) is not None]
        assert any(worth(getattr(child, name)) > worth(getattr(parent, name)) for name in asked)
        return
    for name in NUMBERS:
        assert worth(found.get(name)) <= worth(getattr(parent, name))
        if getattr(child, name) is not None:
            assert found[name] == getattr(child, name)


@given(st.one_of(st.none(), st.floats(0.1, 1e6)), st.one_of(st.none(), st.floats(0.1, 1e6)))
def test_nor_does_it_live_longer(parent: float | None, child: float | None) -> None:
    try:
        found = seconds_within(parent, child)
    except ocisbx.PolicyDenied:
        assert worth(child) > worth(parent)
        return
    assert worth(found) <= worth(parent)
    assert found == (parent if child is None else child)


def options(house: Box, **more: object) -> dict[str, Any]:
    return {"runtime": {"names": [house.runtime.path]}, "workspace": "none", **more}


@pytest.mark.runtime
def test_they_end_with_it(house: Box) -> None:
    with house.session(name="parent") as parent:
        child = parent.child(name="child", **options(house))
        grandchild = child.child(name="grandchild", **options(house))
        for one in (child, grandchild):
            assert one.run(["echo", "up"]).stdout == b"up\n"
        assert [one.name for one in parent.children()] == ["child"]
        assert [one.name for one in child.children()] == ["grandchild"]
    assert Container.all() == []
    with pytest.raises(ocisbx.InvalidState, match="has ended"):
        child.run(["true"])
    child.close()
    grandchild.close()


@pytest.mark.runtime
def test_they_end_with_it_when_it_is_killed(house: Box) -> None:
    parent = house.session(name="parent")
    with parent:
        child = parent.child(name="child", **options(house))
        child.open()
        os.kill(Container.find("parent").record.supervisor.pid, 9)
        assert eventually(lambda: Container.find("child").state is State.EXITED)
        child.close()


@pytest.mark.runtime
def test_only_its_own_are_its_to_end(house: Box) -> None:
    with house.session(name="one") as one, house.session(name="other") as other:
        child = one.child(name="child", **options(house))
        child.open()
        for given_name in ("child", child.id, "one", one.id, "nobody"):
            with pytest.raises(ocisbx.PolicyDenied, match="not a session of this one"):
                other.end_child(given_name)
        assert child.is_running
        assert one.is_running
        with pytest.raises(ocisbx.PolicyDenied):
            child.end_child("one")
        one.end_child("child")
        assert one.children() == []
        child.close()


@pytest.mark.runtime
def test_more_than_it_has_is_refused_before_anything_starts(house: Box) -> None:
    with house.session(lifetime_s=60) as parent:
        with pytest.raises(ocisbx.PolicyDenied, match="cannot live for 61"):
            parent.child(lifetime_s=61, **options(house))
        child = parent.child(**options(house))
        assert child._lifetime_s == 60
    with house.session(limits={"pids": 50}, allow_degraded=["all"]) as parent:
        with pytest.raises(ocisbx.PolicyDenied, match=r"limits\.pids"):
            parent.child(**options(house, limits={"pids": 51}))
        assert parent.child(**options(house))._sandbox.config.limits.pids == 50
