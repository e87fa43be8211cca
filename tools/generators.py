"""Writes the files that are generated from the package; called by tools/generate.

A generator is a function `def generate(root: Path) -> dict[Path, str]`: the files that it makes
below `root`, the tree, with their text. It must depend on the package alone, never on the host or
the day, so that --check means something.
"""

import argparse
import importlib
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Generator:
    """One generator function and the files that are its own: one it no longer makes is removed."""

    function: str
    owns: str


GENERATORS = (
    Generator("ocisbx.schemas:generate", owns="schemas/*.json"),
    Generator("tools.example_bundles:generate", owns="bundles/*/config.json"),
    Generator("tests.security.manual:generate", owns="ocisbx/man/ocisbx-security.*.md"),
    # And the table in README.md, which is nobody's own.
    Generator("tools.bench_page:generate", owns="benchmarks/RESULTS*.md"),
)

# Lock file: what uv resolves into it. Later ones keep to the versions of run.txt.
LOCKS = {
    "run.txt": ("pyproject.toml", "--group", "build"),
    "dev.txt": ("pyproject.toml", "--group", "build", "--extra", "dev"),
    "init.txt": ("--group", "init"),
}
# For every supported Python and architecture at once, naming no registry.
UV_OPTIONS = (
    "--quiet", "--no-config", "--universal", "--python-version=3.11", "--generate-hashes",
    "--only-binary=:all:", "--no-annotate", "--no-header", "--upgrade",
)  # fmt: skip


def wanted(generator: Generator, root: Path) -> dict[Path, str]:
    module, _, name = generator.function.partition(":")
    files: dict[Path, str] = getattr(importlib.import_module(module), name)(root)
    return files


def differences(generator: Generator, root: Path) -> dict[Path, str | None]:
    """Returns what each differing file should hold; None for one that should not be there."""
    files = wanted(generator, root)
    stray: dict[Path, str | None] = dict.fromkeys(set(root.glob(generator.owns)) - set(files))
    differing = {
        path: text for path, text in files.items() if not path.is_file() or path.read_text() != text
    }
    return {**differing, **stray}


def write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def lock() -> None:
    """Renews the lock files with PyPI's uv, installed for this one use."""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = str(Path(scratch, "bin", "python"))
        subprocess.run([python, "-I", "-m", "pip", "install", "--quiet", "uv"], check=True)
        folder = Path("tools", "requirements")
        for name, inputs in LOCKS.items():
            options = [*UV_OPTIONS, "--output-file", str(folder / name)]
            if name == "dev.txt":
                options += ["--constraints", str(folder / "run.txt")]
            subprocess.run(
                [python, "-m", "uv", "pip", "compile", *options, *inputs], check=True, cwd=ROOT
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on differences")
    parser.add_argument("--lock", action="store_true", help="renew tools/requirements instead")
    options = parser.parse_args()
    if options.lock:
        lock()
        return 0
    sys.path.insert(0, str(ROOT))  # for generators in tools, which is not installed
    changes = {}
    for generator in GENERATORS:
        changes.update(differences(generator, ROOT))
    for path, text in sorted(changes.items()):
        print(f"{path.relative_to(ROOT)}: {'out of date' if text is not None else 'stray'}")
        if not options.check:
            write(path, text)
    if changes and options.check:
        print("tools/generate writes them anew: look at what changed, and commit it")
    return int(bool(changes) and options.check)


if __name__ == "__main__":
    sys.exit(main())
