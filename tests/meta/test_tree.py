"""The shape of the tree: top level, sizes, and words that must not stand in it."""

import ast
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.tree import FILES, FOLDERS, ROOT, files, name, text

MAX_LINES = 400
MAX_FUNCTION_LINES = 40

# Written in two pieces, so that this file may hold them.
REGISTRY_HOSTS = tuple(
    host + domain
    for host, domain in (
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("deb.", "debian.org"),
        ("crates", ".io"),
        ("proxy.", "golang.org"),
        ("npmjs", ".org"),
    )
)
MACHINE_PATHS = tuple("/wo" + f"rk/{folder}" for folder in ("main", "shared", ".library"))
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "XX" + "X:", "NotImpl" + "emented")

PYTHON = list(files(".py"))


def test_the_top_level_is_the_fixed_one() -> None:
    made = {"dist", "build"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - made
    assert found <= FOLDERS | FILES


def test_no_module_is_too_long() -> None:
    long = {name(path): len(text(path).splitlines()) for path in files(".py", ".c", ".h")}
    assert not {path: lines for path, lines in long.items() if lines > MAX_LINES}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Counts the lines of the body that hold code: no docstring, no comment, no blank line."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 0
    inside = lines[body[0].lineno - 1 : function.end_lineno]
    return sum(1 for line in inside if line.strip() and not line.lstrip().startswith("#"))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_no_function_is_too_long(path: Path) -> None:
    source = text(path)
    long = {
        f"{name(path)}:{function.lineno} {function.name}": count
        for function in functions(ast.parse(source))
        if (count := code_lines(function, source.splitlines())) > MAX_FUNCTION_LINES
    }
    assert not long


def test_a_long_function_is_found() -> None:
    body = "\n".join(f"    x = {number}" for number in range(MAX_FUNCTION_LINES))
    for extra, expected in (("", MAX_FUNCTION_LINES), ("\n    y = 1", MAX_FUNCTION_LINES + 1)):
        source = f'def f():\n    """Doc.\n\n    More.\n    """\n    # why\n\n{body}{extra}\n'
        (function,) = functions(ast.parse(source))
        assert code_lines(function, source.splitlines()) == expected


@pytest.mark.parametrize(
    "words", [REGISTRY_HOSTS, MACHINE_PATHS, UNFINISHED], ids=["hosts", "paths", "unfinished"]
)
def test_no_file_holds(words: tuple[str, ...]) -> None:
    pattern = re.compile("|".join(map(re.escape, words)))
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(text(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_scripts_are_executable_and_nothing_else_is() -> None:
    wrong = [
        name(path)
        for path in files()
        if bool(path.stat().st_mode & stat.S_IXUSR) != text(path).startswith("#!")
    ]
    assert not wrong


@pytest.mark.parametrize("lock", sorted((ROOT / "tools" / "requirements").glob("*.txt")), ids=name)
def test_locks_pin_by_hash_and_name_no_host(lock: Path) -> None:
    requirements = text(lock).replace("\\\n", " ").splitlines()
    assert requirements
    for requirement in requirements:
        assert re.match(r"[a-z0-9.-]+==\S+ ", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement
        assert "//" not in requirement, requirement


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads(text(ROOT / "pyproject.toml"))
    needs = {
        "run.txt": project["project"]["dependencies"] + project["dependency-groups"]["build"],
        "dev.txt": [
            *project["project"]["dependencies"],
            *project["dependency-groups"]["build"],
            *project["project"]["optional-dependencies"]["bench"],
            *project["project"]["optional-dependencies"]["test"],
            *project["project"]["optional-dependencies"]["dev"],
        ],
        "init.txt": project["dependency-groups"]["init"],
    }
    for lock, requirements in needs.items():
        locked = set(
            re.findall(r"^([a-z0-9.-]+)==", text(ROOT / "tools/requirements" / lock), re.MULTILINE)
        )
        wanted = {re.split(r"[\[<>=~ ]", item)[0].lower() for item in requirements} - {"ocisbx"}
        assert wanted <= locked, lock
