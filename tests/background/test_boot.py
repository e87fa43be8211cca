"""What a supervisor imports in place of parts of the standard library."""

from __future__ import annotations

import collections
import json
import os
import pickle
import re
import subprocess
import sys
from json import decoder
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ocisbx import errors
from ocisbx.background import boot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = f"import sys; sys.path.append({os.path.dirname(os.path.dirname(errors.__file__))!r})\n"
WHOLE = "load = __import__\n"
SMALL = f"""
space = {{"__name__": "boot"}}
with open({boot.__file__!r}) as file:
    exec(compile(file.read(), "boot.py", "exec"), space)
load = space["import_small"]
"""
LOAD = """
for name in ("supervisor", "attaching"):
    load(f"ocisbx.background.{name}")
load("ocisbx.backends.terminal")
"""
LEFT_OUT = {"collections", "collections.abc", "re", "selectors", "typing", "weakref"}


def printed(script: str) -> Any:
    """What the script prints last, of an interpreter that is started as a supervisor's."""
    argv = [sys.executable, "-I", "-S", "-c", HEAD + script]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


def test_the_stand_in_makes_what_typing_makes() -> None:
    """For every class of ours that a supervisor imports: the same fields, defaults and methods."""
    script = """
import json
def shape(kind):
    return [kind._fields, {k: repr(v) for k, v in kind._field_defaults.items()}, dir(kind)]
found = {f"{name}.{key}": shape(kind) for name, module in sorted(sys.modules.items())
         if name.startswith("ocisbx.") for key, kind in vars(module).items()
         if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")}
print(json.dumps(found))
"""
    plain, stood_in = (printed(first + LOAD + script) for first in (WHOLE, SMALL))
    assert len(plain) > 40
    assert plain.keys() == stood_in.keys()
    for name, (fields, defaults, names) in plain.items():
        mine = stood_in[name]
        assert (mine[0], mine[1]) == (fields, defaults), name
        assert set(names) - set(mine[2]) <= {"__orig_bases__", "__annotations__"}, name


def test_a_supervisor_has_none_of_what_it_does_not_need() -> None:
    script = """
import json
import ocisbx.quirks, ocisbx.probe.cgroups
json.loads(json.dumps({"a": [1.5, None, "b"]}))
ocisbx.quirks.find_quirks("runc", "1.1.5+ds1")
ocisbx.probe.cgroups.manager_cgroup("/user.slice/user-1000.slice/session-1.scope", 1000)
print(json.dumps(sorted(sys.modules)))
"""
    assert not LEFT_OUT & set(printed(SMALL + LOAD + script))
    assert set(printed(WHOLE + LOAD + script)) >= LEFT_OUT


def test_who_asks_for_more_gets_it(tmp_path: Path) -> None:
    (tmp_path / "curious.py").write_text(
        """
import collections, collections.abc, re, typing, weakref
later = re.compile("b+")
asked = [collections.Counter("aab")["a"], later.sub("c", "abb"), later.match("bb").group(),
         re.findall("a", "aa"), typing.get_args(typing.Union[int, str])[1].__name__,
         weakref.finalize.__name__,
         collections.abc.Sized is sys.modules["_collections_abc"].Sized]
""".replace("import collections,", "import sys, collections,")
    )
    script = f"""
sys.path.append({str(tmp_path)!r})
load("curious")
import collections, collections.abc, curious, json, re
from typing import TypedDict
whole = re.compile is not curious.re.compile and collections.abc.Sized is not None
print(json.dumps([*curious.asked, whole]))
"""
    told = [2, "ac", "bb", ["a", "a"], "str", "finalize", True]
    assert printed(SMALL + script) == [*told, True]
    assert printed(WHOLE + script) == [*told, False]


def test_what_is_there_already_is_not_stood_in_for() -> None:
    script = """
import collections.abc, re
before = collections, collections.abc, re
load("ocisbx.background.supervisor")
print(str(before == (sys.modules["collections"], sys.modules["collections.abc"],
                     sys.modules["ocisbx.values"].re)).lower())
"""
    assert printed(SMALL + script) is True


class Plain(NamedTuple):
    a: int
    b: int = 2
    c: int = 3


Stood: Any = boot.make_row("Stood", ["a", "b", "c"], {"b": 2, "c": 3, "__module__": __name__})

DONE: list[Callable[[Any], Any]] = [
    lambda kind: kind(1),
    lambda kind: kind(1, c=5),
    lambda kind: kind(1, 4, 5),
    lambda kind: kind(c=1, a=2),
    lambda kind: kind(),
    lambda kind: kind(b=1),
    lambda kind: kind(1, a=1),
    lambda kind: kind(1, 2, 3, 4),
    lambda kind: kind(1, 2, 3, c=4),
    lambda kind: kind(1, d=4),
    lambda kind: kind(1)._replace(b=7),
    lambda kind: kind(1)._replace(d=7),
    lambda kind: kind(1)._asdict(),
    lambda kind: kind._make([1, 2, 3]),
    lambda kind: kind._make([1, 2, 3, 4]),
    lambda kind: repr(kind(1)).partition("(")[2],
    lambda kind: kind(1).c,
    lambda kind: kind(1) == (1, 2, 3),
    lambda kind: hash(kind(1)) == hash((1, 2, 3)),
    lambda kind: type(pickle.loads(pickle.dumps(kind(1)))) is kind,  # noqa: S301 -- our own
    lambda kind: setattr(kind(1), "a", 2),
    lambda kind: setattr(kind(1), "d", 2),
    lambda kind: kind.__match_args__,
]


@pytest.mark.parametrize("do", DONE)
def test_a_row_is_a_named_tuple(do: Callable[[Any], Any]) -> None:
    def outcome(kind: Any) -> Any:
        try:
            return do(kind)
        except (AttributeError, TypeError, ValueError) as error:
            return type(error)

    assert outcome(Stood) == outcome(Plain)


def test_a_row_of_collections() -> None:
    make: Any = boot.namedtuple
    Pair = collections.namedtuple("Pair", "a, b")  # noqa: PYI024 -- what it stands for
    assert repr(make("Pair", "a, b")(1, b=2)) == repr(Pair(1, b=2))


@pytest.mark.parametrize("text", ["  ", " \n\t\r", "  {}", "{}  ", " \f", "ab"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_blanks_are_those_of_json(text: str, start: int) -> None:
    found = re.compile(boot.Blanks.PATTERN).match(text, start)
    assert found is not None
    assert boot.compile_later(boot.Blanks.PATTERN).match(text, start).end() == found.end()


def test_json_skips_what_we_skip_for_it() -> None:
    """Else every supervisor would compile it."""
    assert decoder.WHITESPACE.pattern == boot.Blanks.PATTERN  # type: ignore[attr-defined]
