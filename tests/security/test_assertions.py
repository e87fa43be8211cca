"""Every assertion on every runtime; every mutant of them; what the kernel holds by itself."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ocisbx.errors import RuntimeFailed
from ocisbx.quirks import KNOWN_NAMES, find_quirks
from tests.box import RUNTIME_IDS, RUNTIMES
from tests.security import gvisor
from tests.security.assertions import OBSERVED, ROWS
from tests.security.bare import bare
from tests.security.conftest import SCORE
from tests.security.groups import GROUPS
from tests.security.mutants import MUTANTS, Mutant
from tests.security.scene import NoObservation, Seen, look, run_late, run_pooled
from tests.security.steps import changed_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ocisbx.host import RuntimeBinary
    from tests.box import Box
    from tests.security.rows import Row

pytestmark = [pytest.mark.runtime, pytest.mark.security]

ROOT = Path(__file__).resolve().parents[2]
TESTS_RUN_ELSEWHERE = [row for row in ROWS if row.holds is None]


def judge(row: Row, seen: Seen) -> bool:
    assert row.holds is not None
    return row.holds(seen)


def title(row: Row) -> str:
    return f"{row.number}: {row.name}"


WAYS = {"cold": None, "pooled": run_pooled, "late workspace": run_late}


def can_go(found: RuntimeBinary, way: str) -> bool:
    """Whether its containers can wait, and can be given a workspace while they do."""
    quirks = find_quirks(found.name, found.version)
    wait = quirks.socket_args is not None
    return {"cold": True, "pooled": wait, "late workspace": wait and not quirks.user_kernel}[way]


ROADS = {
    f"{label}-{way}": (found, way)
    for label, found in zip(RUNTIME_IDS, RUNTIMES, strict=True)
    for way in WAYS
    if can_go(found, way)
}


@pytest.mark.parametrize(("runtime", "way"), ROADS.values(), ids=ROADS, indirect=["runtime"])
def test_the_sandbox_holds(
    box: Box, way: str, record_property: Callable[[str, object], None]
) -> None:
    seen = look(box, way=WAYS[way])
    apart = gvisor.elsewhere(box.runtime)
    judged = [row for row in OBSERVED if row.name not in apart]
    broken = [title(row) for row in judged if not judge(row, seen)]
    record_property(SCORE, score(box, way, held=len(judged) - len(broken), apart=len(apart)))
    assert not broken, broken
    needless = [row.name for row in OBSERVED if row.name in apart and holds_quietly(row, seen)]
    assert not needless, needless


def score(box: Box, way: str, *, held: int, apart: int) -> str:
    found = box.runtime
    name = " ".join(filter(None, (found.name, found.version, found.platform)))
    others = f", {apart} mean something else in gVisor" if apart else ""
    return f"{name}, {way}: {held} of {len(OBSERVED) - apart}{others}"


def holds_quietly(row: Row, seen: Seen) -> bool:
    try:
        return judge(row, seen)
    except (NoObservation, KeyError):
        return False


def can_be_made(runtime: RuntimeBinary, mutant: Mutant) -> bool:
    if gvisor.elsewhere(runtime):
        return mutant.name not in gvisor.UNBROKEN and gvisor.takes_mutants(runtime)
    return runtime.name in mutant.runtimes


def cases(percent: int) -> Iterator[tuple[str, RuntimeBinary, str]]:
    """Each mutant on one version of each runtime, which take turns; with `--mass 100` on all."""
    for turn, mutant in enumerate(MUTANTS.values()):
        for kind in KNOWN_NAMES:
            found = [
                (f"{label}-{mutant.name}", one, mutant.name)
                for label, one in zip(RUNTIME_IDS, RUNTIMES, strict=True)
                if one.name == kind and can_be_made(one, mutant)
            ]
            yield from found if percent >= 100 else found[turn % len(found) :][:1] if found else ()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function is test_a_mutant_is_noticed:
        found = list(cases(metafunc.config.getoption("--mass")))
        given = [(one, name) for _, one, name in found]
        ids = [label for label, _, _ in found]
        # A mark, which takes the place of the fixture's own runtimes.
        mark = pytest.mark.parametrize(("runtime", "name"), given, ids=ids, indirect=["runtime"])
        metafunc.definition.add_marker(mark)


def test_a_mutant_is_noticed(box: Box, name: str) -> None:
    """By each assertion that names it: one that holds all the same would be blind."""
    mutant, apart = MUTANTS[name], gvisor.elsewhere(box.runtime)
    if not mutant.starts:
        with pytest.raises(RuntimeFailed, match="could not start the container"):
            look(box, mutant)
        return
    rows = [row for row in OBSERVED if name in row.mutants and row.name not in apart]
    rows = [row for row in rows if bites_here(row)]
    if not rows:
        # Nothing on this host for it to lay open: no such device, no such file of the kernel.
        return
    seen = look_contained(box, mutant) if mutant.contained else look(box, mutant)
    blind = {row.name for row in rows if judge(row, seen)}
    held = gvisor.HELD_BY_THE_SENTRY.get(name, frozenset()) if apart else frozenset()
    assert blind == held & {row.name for row in rows}


# What ocisbx-cell leaves out when it mounts a workspace, and the assertions that notice it.
LATE_MUTANTS = {
    "no nosuid": (".set = set | MOUNT_ATTR_NOSUID |", ".set = set |", "every mount is nosuid"),
    "no nodev": (
        "MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,",
        "MOUNT_ATTR_NOSUID,",
        "every mount is nodev",
    ),
}


@pytest.mark.parametrize("name", LATE_MUTANTS)
@pytest.mark.parametrize(
    "runtime",
    [found for found, way in ROADS.values() if way == "late workspace"][:1],
    indirect=True,
    ids=lambda found: found.name,
)
def test_a_late_mount_that_is_weaker_is_noticed(box: Box, name: str) -> None:
    old, new, assertion = LATE_MUTANTS[name]
    weakened = changed_programs(("cell_workspace.c", old, new))
    seen = look(box, way=run_late, weakened=weakened)
    assert [row.name for row in OBSERVED if not judge(row, seen)] == [assertion]


def bites_here(row: Row) -> bool:
    """Whether there is something on this host that the mutant would lay open."""
    return row.here() and not (row.kernel and judge(row, bare()))


def look_contained(box: Box, mutant: Mutant) -> Seen:
    """In `unshare`, as the same user, with a /proc of its own."""
    base = box.base / "contained"
    base.mkdir()
    box.cache.mkdir(exist_ok=True)
    enter = ("unshare", "-U", "--map-current-user", "--pid", "--kill-child", "--mount-proc")
    module = (sys.executable, "-P", "-m", "tests.security.contained")
    done = subprocess.run(
        [*enter, *module, box.runtime.path, mutant.name, str(base)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(base)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Seen(**json.loads(done.stdout))


BY_THE_KERNEL = [row for row in OBSERVED if row.kernel]


@pytest.mark.parametrize("row", BY_THE_KERNEL, ids=title)
def test_the_kernel_refuses_it_anyway(row: Row) -> None:
    """Unless it has mutants as well: then whether it does decides what they have to show."""
    assert judge(row, bare()) or row.mutants


def test_an_assertion_that_no_mutant_can_break_is_not_blind() -> None:
    """No runtime starts without a mount namespace; a bare `unshare -Ur` has none."""
    unbreakable = [row for row in OBSERVED if any(not MUTANTS[name].starts for name in row.mutants)]
    assert [row.name for row in unbreakable] == ["a mnt namespace of its own"]
    assert not judge(unbreakable[0], bare())


# ---------------------------------------------------------------------------- the tables themselves
def test_every_number_is_covered() -> None:
    assert {row.number for row in ROWS} == set(range(1, 71))
    assert {first for first, _ in GROUPS} == {1, *(last + 1 for _, last in GROUPS if last < 70)}


def test_every_assertion_can_fail() -> None:
    for row in ROWS:
        proven = row.mutants or row.kernel
        assert bool(row.holds and proven) != bool(row.test and row.counter_test), title(row)
        assert set(row.mutants) <= set(MUTANTS), title(row)


def test_every_mutant_and_every_name_is_used_once() -> None:
    assert set(MUTANTS) == {name for row in ROWS for name in row.mutants}
    counts = Counter(map(title, ROWS))
    assert not [name for name, count in counts.items() if count > 1]


def test_gvisors_tables_name_what_there_is() -> None:
    names = {row.name for row in OBSERVED}
    assert set(gvisor.OLD) | set(gvisor.NEW) <= names
    assert set(gvisor.UNBROKEN) | set(gvisor.HELD_BY_THE_SENTRY) <= set(MUTANTS)
    assert frozenset().union(*gvisor.HELD_BY_THE_SENTRY.values()) <= names


@pytest.mark.parametrize("row", TESTS_RUN_ELSEWHERE, ids=title)
def test_a_test_that_is_named_exists(row: Row) -> None:
    for node in (row.test, row.counter_test):
        path, _, function = node.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
