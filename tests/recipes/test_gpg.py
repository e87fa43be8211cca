"""gpg: a key, a signature and a letter, proven by the host's gpg."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.recipes.cookbook import last

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recipes.cookbook import Cookbook

pytestmark = pytest.mark.runtime

PASSPHRASE = {"GPG_PASSPHRASE": "4 rather long one"}
OTHER = {"GPG_PASSPHRASE": "another long one"}


def gpg(home: Path, *words: str) -> str:
    """The host's, with keys of its own, and without an agent."""
    options = ("--homedir", str(home), "--no-autostart", "--batch", "--status-fd", "1")
    command = ["gpg", *options, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def agents(workspace: Path) -> list[int]:
    """The agents whose keys lie in the workspace."""
    return [
        process.pid
        for process in psutil.process_iter(["name", "cmdline"])
        if "gpg-agent" in process.info["name"]
        and str(workspace) in " ".join(process.info["cmdline"] or ())
    ]


def test_a_key_a_signature_and_a_letter(cookbook: Cookbook, tmp_path: Path) -> None:
    """One key for all: to make it is what takes time."""
    keys = cookbook.workspace / "keys"
    theirs = tmp_path / "theirs"
    for directory in (keys, theirs):
        directory.mkdir(mode=0o700)
    # Else each agent measures for seconds how slow it can make the guessing of passphrases.
    (keys / "gpg-agent.conf").write_text("s2k-count 65536\n")
    report = cookbook.cook("gpg-key", secrets=PASSPHRASE, needs_name=True)
    assert report["outcome"] == "ok", last(report)
    # A public key needs no agent, and leaves nothing behind.
    shutil.copy(keys / "pubring.kbx", theirs)
    assert "Ada Lovelace <ada@example.org>" in gpg(theirs, "--with-colons", "--list-keys")

    note = cookbook.workspace / "note.txt"
    note.write_text("so it is\n")
    report = cookbook.cook("gpg-sign", secrets=OTHER)
    assert (report["outcome"], report["message"]) == ("fail", "signing failed: Bad passphrase")
    assert not note.with_suffix(".txt.asc").exists()
    report = cookbook.cook("gpg-sign", secrets=PASSPHRASE)
    assert report["outcome"] == "ok", last(report)
    assert "[GNUPG:] GOODSIG" in gpg(theirs, "--verify", f"{note}.asc", str(note))

    letter = cookbook.workspace / "letter.asc"
    words = ("--trust-model", "always", "--armor", "-r", "ada@example.org", "-o", str(letter))
    gpg(theirs, *words, "--encrypt", str(note))
    report = cookbook.cook("gpg-decrypt", secrets=OTHER, needs_name=True)
    assert report["message"] == "it does not open the key", last(report)
    plain = cookbook.workspace / "plain.txt"
    assert not plain.exists()
    report = cookbook.cook("gpg-decrypt", secrets=PASSPHRASE, needs_name=True)
    assert report["outcome"] == "ok", last(report)
    assert plain.read_text() == "so it is\n"

    # The agent knew the passphrase: it is gone with its container, and so is what it listens on.
    assert agents(cookbook.workspace) == []
    assert not list(keys.glob("S.gpg-agent*"))
