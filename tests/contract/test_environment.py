"""The payload's environment and descriptors: clean, and what was asked for."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.container.resolve import SAFE_NAMES
from ocisbx.errors import ConfigError
from tests.contract.conftest import refused

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

OURS = {"PATH", "HOME", "USER", "LOGNAME", "PWD", "OCISBX", "TAR_OPTIONS"}


def environment(box: Box, **env: Any) -> dict[str, str]:
    result = box.run(["env", "-0"], env=env)
    assert result.exit_code == 0
    return dict(entry.split("=", 1) for entry in result.stdout.decode().split("\0") if entry)


def test_clean_by_default(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = {
        "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "x",
        "NOTIFY_SOCKET": "/run/notify", "AWS_SECRET_ACCESS_KEY": "secret", "LD_PRELOAD": "",
        "http_proxy": "http://proxy", "SSH_AUTH_SOCK": "/tmp/agent", "PYTHONPATH": "/x",
        "XDG_DATA_DIRS": "/x", "LC_ALL": "C", "TZ": "UTC", "GOTRACEBACK": "crash",
    }  # fmt: skip
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    seen = environment(box)
    assert OURS <= set(seen) <= OURS | set(SAFE_NAMES)
    assert (seen["LC_ALL"], seen["TZ"]) == ("C", "UTC")
    assert (seen["HOME"], seen["PWD"]) == ("/root", str(box.workspace))


def test_the_callers_activation_reaches_nothing(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """linux.md 2.6: runtimes hand LISTEN_FDS's descriptors and NOTIFY_SOCKET on to containers."""
    reader, writer = os.pipe()
    leaked = [os.dup2(writer, number, inheritable=True) for number in (40, 41)]
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.setenv("NOTIFY_SOCKET", "@ocisbx-proof")
    try:
        script = (
            "import os, sys\n"
            "open_ones = []\n"
            "for n in range(3, 1024):\n"
            "    try: os.fstat(n); open_ones.append(n)\n"
            "    except OSError: pass\n"
            "print(open_ones, [n for n in os.environ if n.startswith(('LISTEN', 'NOTIFY'))])\n"
        )
        assert box.python(script).stdout == b"[] []\n"
        # What leaked is nowhere in the container, its init and the runtime among them.
        os.close(writer)
        for number in leaked:
            os.close(number)
        with box.sandbox().start(["cat"], input=None) as execution:
            assert execution.wait() is not None
        os.set_blocking(reader, False)
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_a_leaked_descriptor_is_held_by_no_container(box: Box) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)  # noqa: FBT003 -- takes no keyword
    with box.sandbox().start(["sh", "-c", "echo ready; sleep 60"], on_stdout=lambda _: None) as one:
        while one.logs() != b"ready\n":
            pass
        os.close(writer)
        os.set_blocking(reader, False)
        # The end of the pipe: nobody but us had it open.
        assert os.read(reader, 1) == b""
    os.close(reader)


def test_inherit_set_unset(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "inherited")
    monkeypatch.setenv("OTHER", "not asked for")
    monkeypatch.delenv("MISSING", raising=False)
    seen = environment(
        box,
        inherit=["MINE", "MISSING"],
        set={"A": "1", "_1": "x", "PATH": "/usr/bin", "E": ""},
        unset=["USER"],
    )
    assert (seen["MINE"], seen["A"], seen["E"], seen["PATH"]) == ("inherited", "1", "", "/usr/bin")
    assert seen["_1"] == "x"
    assert not {"OTHER", "MISSING", "USER"} & set(seen)


def test_inherited_values_are_those_of_the_call(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is kept; what it forwards is looked up each time."""
    sandbox = box.sandbox(env={"inherit": ["MINE"]})
    for value in ("one", "two", 'quo"te\\ ünïcode \U0001f980 $x %s {} \n newline'):
        monkeypatch.setenv("MINE", value)
        assert sandbox.run(["sh", "-c", 'printf %s "$MINE"']).stdout.decode() == value


@refused
@pytest.mark.parametrize("name", ["", "A=B", "A\0B", "A B="])
def test_names_that_are_none(box: Box, name: str) -> None:
    with pytest.raises(ConfigError):
        environment(box, set={name: "x"})


ARGUMENTS = (
    "plain", "", " ", "new\nline", "quo'te\"s", "back\\slash", "$HOME `id`", "ünïcödé 日本 🦀",
    "\x01\x7f", "--", "-x", "{}", "%s", "\\u0000", "\u2028", '","', "x" * 100_000,
)  # fmt: skip


def test_arguments_arrive_as_they_are(box: Box) -> None:
    script = "import sys; sys.stdout.buffer.write(b'\\0'.join(a.encode() for a in sys.argv[1:]))"
    assert box.python(script, *ARGUMENTS).stdout.decode().split("\0") == list(ARGUMENTS)


@refused
def test_arguments_that_are_no_text(box: Box) -> None:
    for argument in ("\udcff", "a\0b"):
        with pytest.raises(ConfigError):
            box.run(["echo", argument])


@refused
def test_more_arguments_than_execve_takes(box: Box) -> None:
    """execve(2): 128 KiB for one string, a quarter of the stack for all."""
    with pytest.raises(ConfigError):
        box.run(["true", "x" * (128 << 10)])


def test_rlimits(box: Box) -> None:
    text = box.text("ulimit -c; ulimit -n; ulimit -Hn; ulimit -t")
    assert text.split()[0] == "0"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(text.split()[1]) <= min(65536, hard)
    limits = {"rlimits": {"nofile": [100, 200], "fsize": 1 << 20}}
    assert box.text("ulimit -n; ulimit -Hn", limits=limits).split() == ["100", "200"]
    result = box.run(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=4"], limits=limits)
    assert (result.termination.value, result.signal) == ("signaled", 25)
    assert (box.workspace / "big").stat().st_size == 1 << 20


@refused
def test_an_rlimit_above_the_callers_own(box: Box) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with pytest.raises(ConfigError, match="RLIMIT_NOFILE"):
        box.run(["true"], limits={"rlimits": {"nofile": [10, hard + 1]}})
