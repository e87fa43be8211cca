"""Pools on every runtime that can keep containers ready."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.quirks import find_quirks
from tests.box import RUNTIME_IDS, RUNTIMES, newest
from tests.box_fixtures import box, cache
from tests.cgroups import cgroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box

    Make = Callable[..., ocisbx.Pool]

__all__ = ["box", "cache", "cgroup", "runtime"]


def can_wait(found: RuntimeBinary) -> bool:
    """gVisor on its default platform: how it intercepts calls is nothing that a pool touches."""
    quirks = find_quirks(found.name, found.version)
    return quirks.socket_args is not None and found.platform in (None, *quirks.platforms[:1])


ABLE = [(one, name) for one, name in zip(RUNTIMES, RUNTIME_IDS, strict=True) if can_wait(one)]
# Those whose containers have the host's kernel.
SHARING = [(one, name) for one, name in ABLE if not find_quirks(one.name, one.version).user_kernel]
NATIVE, NATIVE_IDS = [one for one, _ in SHARING], [name for _, name in SHARING]


# What a pool does by itself, before any runtime is asked.
on_any = pytest.mark.parametrize("runtime", NATIVE[:1], ids=["any"], indirect=True)
# For what does not depend on a runtime's version: the newest of each name.
NEWEST = [one for one, _ in ABLE if one in newest(one.name)]
of_each_name = pytest.mark.parametrize(
    "runtime", NEWEST, ids=[one.name for one in NEWEST], indirect=True
)


@pytest.fixture(params=[one for one, _ in ABLE], ids=[name for _, name in ABLE])
def runtime(request: pytest.FixtureRequest) -> RuntimeBinary:
    found: RuntimeBinary = request.param
    return found


@pytest.fixture
def make(box: Box) -> Iterator[Make]:
    """Makes pools of this box, and closes them."""
    with contextlib.ExitStack() as stack:

        def made(size: int | tuple[int, int] = 2, **options: Any) -> ocisbx.Pool:
            names = ("max_age_s", "idle_s", "audit", "start_timeout_s", "warm", "warm_imports")
            own = {name: options.pop(name) for name in names if name in options}
            pool = ocisbx.Pool(box.sandbox(**options).config, size, **own)
            stack.callback(pool.close)
            return pool

        yield made


@pytest.fixture
def pool(make: Make) -> ocisbx.Pool:
    return make()
