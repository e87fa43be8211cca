"""Rules of [filesystem] on described hosts: what a pattern means, and which mounts come of it."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.config import SandboxConfig
from ocisbx.container.model import Bind, ContainerConfig
from ocisbx.container.paths import is_below
from ocisbx.container.resolve import resolve
from ocisbx.container.rules import is_glob, matches, may_lead, split_pattern
from ocisbx.errors import ConfigError, Unsupported
from ocisbx.host import Link, Matches, PathFact, PathKind, Place
from ocisbx.placeholder import Placeholder
from ocisbx.presets import PRESETS, PROTECTED
from ocisbx.result import EnforcementState
from tests.unit.hosts import make_host

# --------------------------------------------------------------------------------------- patterns
NAMES = st.sampled_from(["a", "ab", "b", ".env", "a.b"])
PARTS = st.sampled_from(["a", "*", "**", "?", "[ab]", "a*", "*.b", ".env"])


def as_regex(parts: list[str]) -> str:
    """The same by other means: a path's names, each with a slash after it."""
    words = {"**": "(?:[^/]+/)*", "*": "[^/]*/", "?": "[^/]/", "[ab]": "[ab]/"}
    return "".join(words.get(p, re.escape(p).replace(r"\*", "[^/]*") + "/") for p in parts)


@given(st.lists(NAMES, max_size=5), st.lists(PARTS, max_size=4))
def test_patterns_match_as_their_regular_expression(names: list[str], parts: list[str]) -> None:
    text = "".join(f"{name}/" for name in names)
    assert matches(names, parts) == bool(re.fullmatch(as_regex(parts), text))


@given(st.lists(NAMES, min_size=1, max_size=5), st.lists(PARTS, max_size=4))
def test_a_walk_leads_to_every_match(names: list[str], parts: list[str]) -> None:
    if matches(names, parts):
        assert all(may_lead(names[:length], parts) for length in range(len(names)))


@pytest.mark.parametrize(("pattern", "base", "rest"), [
    ("/a/b", "/a/b", ()), ("/a/*/b", "/a", ("*", "b")), ("/**/x", "/", ("**", "x")),
    ("/a/[b]", "/a", ("[b]",)), ("/a?/b", "/", ("a?", "b")),
])  # fmt: skip
def test_the_base_of_a_pattern(pattern: str, base: str, rest: tuple[str, ...]) -> None:
    assert split_pattern(pattern) == (base, rest)
    assert is_glob(pattern) == bool(rest)


@pytest.mark.parametrize("pattern", ["../x", "a/../b", "/a/../b", "~/x", ""])
def test_patterns_that_lead_upwards(pattern: str) -> None:
    with pytest.raises(ConfigError):
        SandboxConfig(filesystem={"deny_write": [pattern]})


# ------------------------------------------------------------------------------------- the mounts
WS = "/srv/work"


def place(path: str, kind: str = "file", **fields: Any) -> Matches:
    return Matches(places=(Place(real=path, kind=PathKind(kind), **fields),))


def missing(path: str, first: str = "") -> Matches:
    return place(path, "missing", missing=first or path)


def lay(
    found: dict[str, Matches], rules: dict[str, list[str]], preset: str = "yolo", **fields: Any
) -> ContainerConfig:
    """The container of these rules, where each pattern leads to what `found` says."""
    host = make_host(
        matches={
            posixpath.normpath(posixpath.join(WS, pattern)): one for pattern, one in found.items()
        },
        **fields.pop("host", {}),
    )
    wanted = {"workspace": WS, "preset": preset, "filesystem": rules, **fields}
    return resolve(SandboxConfig(**wanted), host)


def policy_of(container: ContainerConfig) -> list[tuple[str, str, bool]]:
    """(target, source, read-only) of the binds at and below the workspace, without itself."""
    return [
        (posixpath.relpath(bind.target, WS), bind.source.removeprefix(f"{WS}/"), bind.read_only)
        for bind in container.binds
        if is_below(bind.target, WS)
        and (bind.target, bind.source, bind.read_only) != (WS, WS, False)
    ]


TABLE: dict[str, tuple[dict[str, Matches], dict[str, list[str]], list[tuple[str, str, bool]]]] = {
    "a file": (
        {"f": place(f"{WS}/f")},
        {"deny_write": ["f"]},
        [("f", "f", True)],
    ),
    "below directories, which are pinned": (
        {"a/b/f": place(f"{WS}/a/b/f")},
        {"deny_write": ["a/b/f"]},
        [("a", "a", False), ("a/b", "a/b", False), ("a/b/f", "a/b/f", True)],
    ),
    "a missing file in a directory": (
        {"a/f": missing(f"{WS}/a/f")},
        {"deny_write": ["a/f"]},
        [("a", "a", False), ("a/f", "covers/empty", True)],
    ),
    "missing directories": (
        {"a/b/f": missing(f"{WS}/a/b/f", f"{WS}/a")},
        {"deny_write": ["a/b/f"]},
        [("a", "covers/empty", True)],
    ),
    "hidden": (
        {"d": place(f"{WS}/d", "directory"), "f": place(f"{WS}/f"), "m": missing(f"{WS}/m")},
        {"deny_read": ["d", "f", "m"]},
        [("d", "covers/hidden", True), ("f", "covers/hidden-file", True),
         ("m", "covers/hidden", True)],
    ),
    "denied twice": (
        {"a": place(f"{WS}/a", "directory"), "a/b/f": place(f"{WS}/a/b/f")},
        {"deny_write": ["a/b/f", "a"]},
        [("a", "a", True)],
    ),
    "hidden in what is read-only": (
        {"a": place(f"{WS}/a", "directory"), "a/b/f": place(f"{WS}/a/b/f")},
        {"deny_write": ["a"], "deny_read": ["a/b/f"]},
        [("a", "a", True), ("a/b/f", "covers/hidden-file", True)],
    ),
    "one path by two rules": (
        {"a": place(f"{WS}/a", "directory")},
        {"deny_write": ["a"], "deny_read": ["a"], "allow_write": ["a"]},
        [("a", "covers/hidden", True)],
    ),
    "allowed in what is denied": (
        {"a": place(f"{WS}/a", "directory"), "a/b": place(f"{WS}/a/b", "directory"),
         "a/b/f": place(f"{WS}/a/b/f")},
        {"deny_write": ["a", "a/b/f"], "allow_write": ["a/b"]},
        [("a", "a", True), ("a/b", "a/b", False), ("a/b/f", "a/b/f", True)],
    ),
    "the whole workspace": (
        {".": place(WS, "directory")},
        {"deny_write": ["."]},
        [(".", WS, True)],
    ),
    "through a link outside of what can be written": (
        {"/l/f": place(f"{WS}/f", links=(Link(path="/l", target=WS, rest="f"),))},
        {"deny_write": ["/l/f"]},
        [("f", "f", True)],
    ),
    "nothing of it is shown": (
        {"/other/f": place("/other/f")},
        {"deny_write": ["/other/f"], "deny_read": ["/other/f"]},
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_mounts(case: str) -> None:
    found, rules, expected = TABLE[case]
    container = lay(found, rules)
    assert policy_of(container) == expected
    assert container.enforcement["filesystem"].state is EnforcementState.ENFORCED


def test_what_the_driver_does_on_the_host() -> None:
    found = {"m": missing(f"{WS}/m"), "d": place(f"{WS}/d", "directory", missing=f"{WS}/d")}
    side = lay(found, {"deny_write": ["m", "d"]}).host_side
    assert side.placeholders == (Placeholder(f"{WS}/d"), Placeholder(f"{WS}/m"))
    assert side.covers == ("covers/empty",)
    # No path of the host is mounted onto itself: no symlink can come in between.
    assert side.verified == ()
    side = lay({"f": place(f"{WS}/f")}, {"deny_write": ["f"]}).host_side
    assert (WS, WS, True) in side.verified
    assert ("/usr", "/usr", False) in side.verified
    assert not any(f"{WS}/f" in row for row in side.verified)


DOUBTS: dict[str, tuple[Matches, str]] = {
    "a link": (place(f"{WS}/f", links=(Link(path=f"{WS}/l", target="f"),)), "is a symlink"),
    "a hard link": (place(f"{WS}/f", elsewhere=f"{WS}/f"), "hard link"),
    "a bound": (Matches(cut="there are more"), "there are more"),
    "write-protected": (
        place(f"{WS}/d/m", "missing", missing=f"{WS}/d/m", parent="closed"),
        "write-protected",
    ),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_does_not_wholly_hold(doubt: str) -> None:
    found, words = DOUBTS[doubt]
    pattern = "*" if doubt == "a bound" else "x"
    with pytest.raises(Unsupported, match=words) as raised:
        lay({pattern: found}, {"deny_write": [pattern]})
    assert "--allow-degraded filesystem" in raised.value.remedy
    entry = lay(
        {pattern: found}, {"deny_write": [pattern]}, allow_degraded=["filesystem"]
    ).enforcement["filesystem"]
    assert entry.state is EnforcementState.PARTIAL
    assert words in entry.how


def test_a_presets_doubts_are_no_refusal() -> None:
    link = place(f"{WS}/other", "directory", links=(Link(path=f"{WS}/.vscode", target="other"),))
    entry = lay({".vscode": link}, {}, "coding-agent").enforcement["filesystem"]
    assert entry.state is EnforcementState.PARTIAL


@pytest.mark.parametrize("preset", PRESETS)
def test_what_each_preset_protects(preset: str) -> None:
    found = {one.pattern: place(f"{WS}/{one.pattern}", "directory") for one in PROTECTED}
    container = lay(found, {}, preset, runtime={"names": ["crun"]})
    mounted = {target for target, _, read_only in policy_of(container) if read_only} - {"."}
    relative = {one.pattern for one in PRESETS[preset].protected} & {
        one.pattern for one in PROTECTED if one.pattern[0] != "~" and not is_glob(one.pattern)
    }
    # Of a workspace that is read-only nothing has to be said.
    expected = set() if preset == "locked-down" else relative
    assert {target for target in mounted if "*" not in target} == expected


def test_who_allows_takes_back_what_a_preset_denies() -> None:
    found = {".vscode": place(f"{WS}/.vscode", "directory"), ".idea": missing(f"{WS}/.idea")}
    kept = lay(found, {}, "coding-agent")
    assert policy_of(kept) == [(".idea", "covers/empty", True), (".vscode", ".vscode", True)]
    lifted = lay(found, {"allow_write": [".vscode"]}, "coding-agent")
    assert policy_of(lifted) == [(".idea", "covers/empty", True)]
    found["."] = place(WS, "directory")
    everything = lay(found, {"allow_write": ["."]}, "coding-agent")
    assert policy_of(everything) == []
    # But not the caller's own word.
    own = lay(found, {"allow_write": [".vscode"], "deny_write": [".vscode"]}, "coding-agent")
    assert (".vscode", ".vscode", True) in policy_of(own)


def test_own_code() -> None:
    code = f"{WS}/ocisbx"
    host = {"own_code": (code,)}
    found = {"ocisbx": place(code, "directory")}
    assert policy_of(lay(found, {}, "coding-agent", host=host)) == [("ocisbx", "ocisbx", True)]
    assert policy_of(lay(found, {}, "yolo", host=host)) == []
    above = lay(
        {"/srv": place("/srv", "directory")}, {}, "coding-agent", host={"own_code": ("/srv",)}
    )
    assert above.enforcement["filesystem"].state is EnforcementState.PARTIAL


def test_what_is_given_elsewhere_is_held_there_too() -> None:
    host = {"paths": {WS: PathFact(kind=PathKind.DIRECTORY, real=WS)}}
    rules = {"deny_write": ["f"], "deny_read": ["/usr/share/secret"]}
    found = {"f": place(f"{WS}/f"), "/usr/share/secret": place("/usr/share/secret", "directory")}
    container = lay(found, rules, host=host, volumes=[f"{WS}:/twice", f"{WS}:/again:ro"])
    denied = {bind.target for bind in container.binds if bind.source == f"{WS}/f"}
    assert denied == {f"{WS}/f", "/twice/f"}
    assert Bind(
        source="covers/hidden", target="/usr/share/secret", read_only=True, directory=False
    ) in container.binds  # fmt: skip


def test_contradictions() -> None:
    found = {"a": place(f"{WS}/a", "directory"), "a/b": place(f"{WS}/a/b", "directory")}
    with pytest.raises(ConfigError, match="deny_read hides"):
        lay(found, {"deny_read": ["a"], "allow_write": ["a/b"]})
    with pytest.raises(ConfigError, match="does not exist"):
        lay({"n": missing(f"{WS}/n")}, {"allow_write": ["n"]})
    with pytest.raises(ConfigError, match="there is none"):
        resolve(SandboxConfig(workspace="none", filesystem={"deny_write": ["x"]}), make_host())
    with pytest.raises(KeyError):
        lay({}, {"deny_write": ["unknown"]})


# ------------------------------------------------------------------ of nested rules the innermost
TREE = ["a", "a/a", "a/b", "a/a/a", "a/a/b", "b", "b/a", "b/a/b"]
VERBS = ("deny_read", "deny_write", "allow_write")


@given(st.dictionaries(st.sampled_from(TREE), st.sampled_from(VERBS)))
def test_the_innermost_rule_holds(chosen: dict[str, str]) -> None:
    rules = {verb: [path for path in chosen if chosen[path] == verb] for verb in VERBS}
    found = {path: place(f"{WS}/{path}", "directory") for path in chosen}
    try:
        container = lay(found, rules)
    except ConfigError:
        hidden = [path for path in chosen if chosen[path] == "deny_read"]
        assert any(
            is_below(f"/{one}", f"/{path}") for path in hidden for one in rules["allow_write"]
        )
        return
    for path in TREE:
        above = [one for one in chosen if is_below(f"/{path}", f"/{one}")]
        verb = chosen[max(above, key=len)] if above else "allow_write"
        if any(chosen[one] == "deny_read" for one in above):
            verb = "deny_read"
        shown = max(
            (bind for bind in container.binds if is_below(f"{WS}/{path}", bind.target)),
            key=lambda bind: len(bind.target),
        )
        seen = "deny_read" if shown.source.startswith("covers/") else "deny_write"
        assert verb == (seen if shown.read_only else "allow_write"), path
