"""import-linter's contracts: kept by the package, and each broken by an import that it forbids.

The second is tried on a package made for it, with the contracts of the real pyproject.toml.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.meta.tree import ROOT, text

PYPROJECT = text(ROOT / "pyproject.toml")
IMPORT_LINTER = tomllib.loads(PYPROJECT)["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in IMPORT_LINTER["contracts"]}
LINT = "from importlinter.cli import lint_imports_command as lint; lint()"

# Contract: (module, the line that must break it).
FORBIDDEN = [
    ("layers", "errors", "from ocisbx import cli"),
    ("layers", "errors", "import ocisbx.oci.config"),
    ("layers", "config", "import ocisbx.container"),
    ("layers", "config", "import ocisbx.host"),
    ("layers", "runtime", "import ocisbx.bundle"),
    ("layers", "specgen.mounts", "import ocisbx.sandbox"),
    ("layers", "specgen.mounts", "def later():\n    import ocisbx.backends"),
    ("layers", "unheard_of", ""),
    ("processes", "runtime", "import subprocess"),
    ("processes", "specgen.mounts", "from subprocess import run"),
    ("syscalls", "capture", "import cffi"),
    ("syscalls", "cgroup.stats", "import ctypes"),
    ("oci", "oci.config", "import ocisbx.errors"),
]
ALLOWED = [
    ("cli", "import ocisbx.sandbox, ocisbx.errors"),
    ("command", "import subprocess"),
    ("syscalls", "import cffi"),
    ("oci.config", "import pydantic"),
]


def modules_of_the_contracts() -> set[str]:
    """All modules that the contracts name, dotted names below the package."""
    named: set[str] = set()
    for contract in CONTRACTS.values():
        for line in contract.get("layers", []):
            named.update(re.findall(r"\w+", line))
        for module in contract.get("source_modules", []) + contract.get("forbidden_modules", []):
            if module.startswith("ocisbx."):
                named.add(module.removeprefix("ocisbx."))
    return named | {"oci.config", "specgen.mounts", "cgroup.stats"}


def make_package(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PYPROJECT)
    for module in sorted(modules_of_the_contracts()):
        path = folder.joinpath("ocisbx", *module.split("."))
        path.mkdir(parents=True, exist_ok=True)
        for package in (path, *path.parents):
            if package == folder:
                break
            (package / "__init__.py").touch()


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_keeps_its_contracts() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_every_contract_is_tried() -> None:
    assert {contract for contract, _, _ in FORBIDDEN} == set(CONTRACTS)


@pytest.mark.parametrize(("contract", "module", "line"), FORBIDDEN)
def test_a_contract_breaks(tmp_path: Path, contract: str, module: str, line: str) -> None:
    make_package(tmp_path)
    path = tmp_path.joinpath("ocisbx", *module.split("."))
    path.mkdir(exist_ok=True)
    (path / "__init__.py").write_text(line + "\n")
    linted = lint(tmp_path)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    assert f"{CONTRACTS[contract]['name']} BROKEN" in linted.stdout


def test_the_contracts_allow_what_they_should(tmp_path: Path) -> None:
    make_package(tmp_path)
    for module, line in ALLOWED:
        tmp_path.joinpath("ocisbx", *module.split("."), "__init__.py").write_text(line + "\n")
    linted = lint(tmp_path)
    assert linted.returncode == 0, linted.stdout + linted.stderr
