"""`ocisbx expect -`, as an agent pipes it."""

from __future__ import annotations

import subprocess
import sys

from tests.meta.tree import ROOT


def call(text: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ocisbx", "expect", *arguments],
        input=text,
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_a_script_from_standard_input() -> None:
    done = call(b'[[steps]]\nexpect = "> "\n', "--dry-run", "-", "--", "cat")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"cat: 1 steps\n   1  expect        30 s\n"


def test_bad_input_is_refused() -> None:
    for text, said in (
        (b"\xff", b"standard input cannot be read"),
        (b"[[steps]]\nexpect = '('", b"standard input:2: steps[0].expect: "),
        (b"x" * (1 << 20) + b"xx", b"standard input is over 1048576 bytes"),
    ):
        done = call(text, "--dry-run", "-", "--", "cat")
        assert done.returncode == 125
        assert said in done.stderr, done.stderr
        assert b"Traceback" not in done.stderr
