"""The audit log shows no secret, whatever its form, and no argument can stall it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.audit import ARGUMENT_LIMIT, REDACTED, redact

SECRET = "hunter2hunter2"
HIDDEN = [
    [f"--password={SECRET}"], ["--password", SECRET], ["-token", SECRET], [f"PASSWORD={SECRET}"],
    [f"AWS_SECRET_ACCESS_KEY={SECRET}"], [f"--api-key={SECRET}"], [f"GITHUB_TOKEN={SECRET}"],
    [f"https://user:{SECRET}@example.org/x"], [f"postgres://u:{SECRET}@db/x?y=1"],
    [f"Authorization: Bearer {SECRET}"], ["--private-key", SECRET], [f"db.passwd = {SECRET}"],
    [f"export MY_API_KEY={SECRET}; make"], [f"x token: {SECRET}"], ["curl", "--passphrase", SECRET],
]  # fmt: skip
TOKENS = (
    "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1" * 18, "github_pat_" + "a" * 30, "glpat-" + "x" * 20,
    "xoxb-123456789012", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_", "sk-" + "a" * 24,
)  # fmt: skip
SHOWN = (
    ["make", "test"], ["git", "commit", "-m", "a message"], ["python3", "-c", "print(1)"],
    ["https://example.org/x:y@z"], ["--author", "me"], ["tokenizer.py", "next"], ["-p", "8080:80"],
)  # fmt: skip


@pytest.mark.parametrize("argv", HIDDEN, ids=" ".join)
def test_hidden(argv: list[str]) -> None:
    shown = redact(argv)
    assert SECRET not in " ".join(shown)
    assert REDACTED in " ".join(shown)
    assert len(shown) == len(argv)


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_by_their_shape(token: str) -> None:
    for text in (token, f"a {token} b", f"x={token}", f"'{token}'"):
        assert token not in redact([text])[0]


@pytest.mark.parametrize("argv", SHOWN, ids=" ".join)
def test_shown(argv: list[str]) -> None:
    assert redact(argv) == argv


@given(st.lists(st.text(max_size=600), max_size=4))
def test_one_for_one_and_short(argv: list[str]) -> None:
    shown = redact(argv)
    assert len(shown) == len(argv)
    assert all(len(text) <= ARGUMENT_LIMIT + 3 for text in shown)


HOSTILE = ("x" * 130_000, "token" * 26_000, "-" * 130_000, "a://" * 30_000, "secret=" * 18_000,
           "eyJ" * 40_000, "a.b-" * 30_000)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:8] for text in HOSTILE])
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.process_time()
    redact([text])
    assert time.process_time() - started < 0.2
