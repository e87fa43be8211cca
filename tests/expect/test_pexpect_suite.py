"""pexpect's own tests, from its source package, with our class in place of its own.

The package comes from the caller's package index, by the hash that the project's lock file pins.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.meta.tree import ROOT, text

if TYPE_CHECKING:
    from pathlib import Path

OURS = "our errors are raised (ConfigError, TerminalError), not pexpect's or Python's"
PROCESS = "about the start, the arguments and the environment of a process, which is not ours"
OTHER_CLASS = "about another class of pexpect, which stays as it is"
# Files of pexpect's tests whose cases fit a given descriptor: the cases that do not, and why.
FITTING: dict[str, dict[str, str]] = {
    "test_async.py": {},
    "test_ctrl_chars.py": {
        "TestCtrlChars::test_bad_sendcontrol_chars": f"a key that makes nothing: {OURS}",
    },
    "test_delay.py": {},
    "test_dotall.py": {},
    "test_expect.py": {},
    "test_filedescriptor.py": {},
    "test_isalive.py": {},
    "test_log.py": {},
    "test_misc.py": {
        "TestCaseMisc::test_bad_arguments_second_arg_is_list": PROCESS,
        "TestCaseMisc::test_read_after_close_raises_value_error": OURS,
    },
    "test_performance.py": {},
    "test_replwrap.py": {
        "REPLWrapTestCase::test_zsh": "needs zsh",
    },
    "test_socket_fd.py": {
        "ExpectTestCase::test_not_file_descriptor": OURS,
        "ExpectTestCase::test_not_int": OURS,
    },
    "test_timeout_pattern.py": {},
    "test_unicode.py": {},
}
NOT_FITTING: dict[str, str] = {
    "test_FSM.py": OTHER_CLASS,
    "test_ansi.py": OTHER_CLASS,
    "test_command_list_split.py": PROCESS,
    "test_constructor.py": PROCESS,
    "test_destructor.py": PROCESS,
    "test_env.py": PROCESS,
    "test_interact.py": "about interact(), which ocisbx attach does",
    "test_missing_command.py": PROCESS,
    "test_pickling.py": "about pexpect's exceptions",
    "test_popen_spawn.py": OTHER_CLASS,
    "test_pxssh.py": OTHER_CLASS,
    "test_repr.py": "about the text that pexpect's object prints itself as",
    "test_run.py": PROCESS,
    "test_screen.py": OTHER_CLASS,
    "test_socket.py": OTHER_CLASS,
    "test_socket_pexpect.py": OTHER_CLASS,
    "test_which.py": PROCESS,
    "test_winsize.py": PROCESS,
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pexpect's source package."""
    folder = tmp_path_factory.mktemp("pexpect")
    lock = text(ROOT / "tools/requirements/run.txt")
    pinned = re.search(r"^pexpect==.*(?:\n    --hash.*)*", lock, re.MULTILINE)
    assert pinned is not None
    wanted = folder / "requirement.txt"
    wanted.write_text(pinned[0] + "\n")
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    subprocess.run(
        [sys.executable, "-I", "-m", "pip", "--no-input", "--disable-pip-version-check", "-q",
         "download", *options, "-r", str(wanted), "-d", str(folder)],
        check=True,
    )  # fmt: skip
    (archive,) = folder.glob("pexpect-*.tar.gz")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    return folder / archive.name.removesuffix(".tar.gz")


def test_all_files_are_judged(suite: Path) -> None:
    assert {path.name for path in (suite / "tests").glob("test_*.py")} == {*FITTING, *NOT_FITTING}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FITTING)
def test_the_cases_that_fit_pass(suite: Path, name: str) -> None:
    path = f"tests/{name}"
    left_out = [f"--deselect={path}::{case}" for case in FITTING[name]]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/expect")]),
        "TERM": "dumb",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
         "pexpect_plugin", "-W", "ignore", "--timeout=60", *left_out, path],
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    summary = done.stdout.splitlines()[-1]
    assert re.search(r"\d+ passed", summary), summary
    deselected = re.search(r"(\d+) deselected", summary)
    assert int(deselected[1] if deselected else 0) == len(FITTING[name]), summary
