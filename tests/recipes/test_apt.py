"""apt-get: a progress bar, and questions in between, proven by what was installed."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.recipes.cookbook import last

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recipes.cookbook import Cookbook

pytestmark = pytest.mark.runtime

CONTROL = """\
Package: {name}
Version: 1.0
Architecture: all
Maintainer: Ada <ada@example.org>
Description: a package of the tests
"""
# All that it reads and writes is below the workspace.
CONFIG = """\
Dir "{root}/";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Bin::dpkg "/usr/bin/dpkg";
DPkg::Options {{ "--root={root}"; "--force-not-root"; "--force-bad-path"; "--log=/dev/null"; }};
APT::Sandbox::User "";
Dpkg::Progress-Fancy "true";
"""


def make_package(debs: Path, name: str, files: dict[str, str], depends: str = "") -> str:
    """A package, and its part of the list."""
    tree = debs / name
    control = CONTROL.format(name=name) + (f"Depends: {depends}\n" if depends else "")
    configuration = "".join(f"/{path}\n" for path in files if path.startswith("etc/"))
    contents = {**files, "DEBIAN/control": control, "DEBIAN/conffiles": configuration}
    for path, text in contents.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    package = debs / f"{name}.deb"
    command = ["dpkg-deb", "--root-owner-group", "-b", str(tree), str(package)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    where = f"Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n"
    return control + where


@pytest.fixture
def root(cookbook: Cookbook) -> Path:
    """Where apt installs; one file of the package is there already."""
    workspace = cookbook.workspace
    root, debs = workspace / "root", workspace / "debs"
    for directory in (
        *("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log/apt"),
        *("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"),
        *("etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d"),
    ):
        (root / directory).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "etc/greeter.conf").write_text("mine\n")
    debs.mkdir()
    files = {"usr/share/greeter": "hello\n", "etc/greeter.conf": "theirs\n"}
    packages = [
        make_package(debs, "greeter", files, depends="words"),
        make_package(debs, "words", {"usr/share/words": "hello\n"}),
    ]
    (debs / "Packages").write_text("\n".join(packages))
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{debs} ./\n")
    (workspace / "apt.conf").write_text(CONFIG.format(root=root))
    return root


def test_an_installation(cookbook: Cookbook, root: Path) -> None:
    report = cookbook.cook("apt")
    assert report["outcome"] == "ok", last(report)
    status = (root / "var/lib/dpkg/status").read_text()
    assert status.count("Status: install ok installed") == 2
    assert (root / "usr/share/greeter").read_text() == "hello\n"
    assert (root / "etc/greeter.conf").read_text() == "mine\n"
    seen = [one["text"] for one in report["steps"][1]["matches"] if one["pattern"] == 1]
    percents = [int(text.partition("[")[2].rstrip("%]")) for text in seen]
    assert percents == sorted(percents)
    assert percents[0] == 0
    assert percents[-1] > 80
    report = cookbook.cook("apt")
    assert report["message"] == "nothing to be done"


def test_an_installation_that_fails(cookbook: Cookbook, root: Path) -> None:
    (root.with_name("debs") / "words.deb").write_bytes(b"no package")
    report = cookbook.cook("apt")
    assert report["outcome"] == "fail"
    assert "words.deb" in report["message"], last(report)
