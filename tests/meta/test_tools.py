"""The scripts of tools/ refuse what they do not know, before they set anything up."""

import os
import subprocess

from tests.meta.tree import ROOT


def call(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "tools" / tool), *arguments],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_unknown_part_of_the_tests_is_refused_with_the_known_ones() -> None:
    ended = call("test", "unit", "nonsense")
    assert ended.returncode == 125
    assert ended.stdout == ""
    assert ended.stderr.startswith(
        "ocisbx: no such part of the tests: nonsense\n  remedy: one of: "
    )
    assert "meta" in ended.stderr.split()


def test_an_unknown_runtime_is_refused_with_the_known_ones() -> None:
    ended = call("install-runtimes", "nonsense")
    assert ended.returncode == 125
    assert ended.stderr == (
        "ocisbx: no such runtime: nonsense\n  remedy: one of: runc crun runsc youki\n"
    )


def test_an_unknown_program_of_the_tests_is_refused_with_the_known_ones() -> None:
    ended = call("test-programs", "nonsense")
    assert ended.returncode == 125
    assert ended.stderr == (
        "ocisbx: no such program: nonsense\n  remedy: one of: sshd postgres opentofu\n"
    )


def test_the_peers_want_root_and_a_command() -> None:
    ended = call("bench-peers", "-u", "nobody", "--", "true")
    if os.geteuid() == 0:
        ended = call("bench-peers", "-u", "nobody")
        assert ended.returncode == 125
    else:
        assert ended.returncode == 69
        assert "  remedy: sudo tools/bench-peers -u USER" in ended.stderr
    ended = call("bench-page", "--all")
    assert (ended.returncode, ended.stdout) == (125, "")
