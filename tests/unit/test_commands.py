"""`[commands]`: which commands a policy lets run, told by the command as it is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.commands import CommandPolicy, parse_pattern
from ocisbx.config import SandboxConfig
from ocisbx.container.merge import command_policy
from ocisbx.errors import ConfigError, PolicyDenied


def allows(policy: CommandPolicy, *argv: str) -> bool:
    try:
        policy.check(argv)
    except PolicyDenied:
        return False
    return True


def policy(allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> CommandPolicy:
    return command_policy(SandboxConfig(commands={"allow": allow, "deny": deny}))


# (pattern, command, denied by it, allowed by it)
MATCHES = (
    ("rm", "rm -rf x", True, True),
    ("rm", "/bin/rm", True, True),
    ("rm", "./rm", True, True),
    ("rm", "rmdir x", False, False),
    ("rm", "sh -c rm", False, False),
    ("git push", "git push --force", True, True),
    ("git push", "/usr/bin/git push", True, True),
    ("git push", "git", False, False),
    ("git push", "git -C x push", False, False),
    ("git pus*", "git push", True, True),
    ("/usr/bin/curl", "/usr/bin/curl x", True, True),
    ("/usr/bin/curl", "//usr/./bin/../bin/curl", True, True),
    ("/usr/bin/curl", "/opt/curl", False, False),
    # What PATH or a relative path leads to inside is not known: denied in doubt, not allowed in it.
    ("/usr/bin/curl", "curl x", True, False),
    ("/usr/bin/curl", "bin/curl x", True, False),
    ("/usr/bin/curl", "wget x", False, False),
    ("/usr/bin/curl *", "/usr/bin/curl", False, False),
    ("/usr/bin/curl *", "/usr/bin/curl x y", True, True),
    ("/opt/*", "/opt/a/b", True, True),
    ("/opt/*", "/opt/../usr/bin/a", False, False),
    ("python[23]*", "python3.11 x", True, True),
    ("*", "anything at all", True, True),
    ("RM", "rm", False, False),
)


@pytest.mark.parametrize(("pattern", "command", "denied", "allowed"), MATCHES)
def test_patterns(pattern: str, command: str, *, denied: bool, allowed: bool) -> None:
    assert allows(policy(deny=(pattern,)), *command.split()) == (not denied)
    assert allows(policy(allow=(pattern,)), *command.split()) == allowed


def test_quoted_words() -> None:
    assert parse_pattern("git commit -m 'a b'") == ("git", "commit", "-m", "a b")
    assert not allows(policy(deny=("'my tool' x",)), "/opt/my tool", "x")


def test_deny_wins_and_empty_allow_is_everything() -> None:
    both = policy(allow=("git",), deny=("git push",))
    assert allows(both, "git", "status")
    assert not allows(both, "git", "push")
    assert not allows(both, "ls")
    assert allows(policy(), "ls")
    assert allows(CommandPolicy(), "anything")


@pytest.mark.parametrize(
    "pattern", ["", " ", "''", "'open", "bin/x", "./x", "a\0", "\ud800", "x" * 4097, 7, None]
)
def test_refused_patterns(pattern: object) -> None:
    with pytest.raises(ConfigError):
        parse_pattern(pattern)


def test_the_refusal_tells_which_line_and_that_it_is_no_boundary() -> None:
    with pytest.raises(PolicyDenied) as raised:
        policy(deny=("git push",)).check(["git", "push", "--token=secret"])
    error = raised.value
    assert error.exit_code == 125
    assert "'git'" in error.what
    assert "deny has 'git push'" in error.why
    assert "no boundary" in error.remedy
    assert "secret" not in error.render()
    with pytest.raises(PolicyDenied, match="allow has only 'a'") as raised:
        policy(allow=tuple("abcdefg")).check(["x"])
    assert "and 2 more" in raised.value.why


WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
WORDS = st.lists(WORD, min_size=1, max_size=4)


@given(WORDS, WORDS)
def test_any_command_is_judged(argv: list[str], pattern: list[str]) -> None:
    """No pattern and no command is more than a yes or a no, and deny refuses what allow takes."""
    words = tuple(pattern)
    allowed = allows(CommandPolicy(allow=(words,)), *argv)
    denied = not allows(CommandPolicy(deny=(words,)), *argv)
    assert denied or not allowed


@given(WORDS.filter(lambda argv: argv[0] not in ("", ".", "..")))
def test_a_command_matches_itself(argv: list[str]) -> None:
    quoted = tuple("".join(f"[{c}]" if c in "*?[" else c for c in word) for word in argv)
    assert not allows(CommandPolicy(deny=(quoted,)), *argv) or "/" in argv[0]
