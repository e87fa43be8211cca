"""The rules of architecture.md on who may touch the host, found in the syntax tree.

import-linter sees imports only; `os.posix_spawn` and a read of /proc need no import of their own.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Finding = tuple[int, str]

_PROCESS_MODULES = {"subprocess", "pty", "multiprocessing", "_posixsubprocess"}
_PROCESS_CALLS = ("exec", "fork", "popen", "posix_spawn", "spawn", "system")
_C_MODULES = {"cffi", "_cffi_backend", "ctypes", "_ctypes"}
_READERS = {
    "open", "Path", "PurePath", "listdir", "scandir", "stat", "lstat", "readlink", "access",
    "exists", "isdir", "isfile", "realpath", "read_text", "read_bytes", "statvfs",
}  # fmt: skip
_HOST_FILES = ("/proc", "/sys")
# A process may look at its own descriptors anywhere.
_OWN_FILES = ("/proc/self/fd", "/proc/thread-self/fd")


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module.partition(".")[0]


def _attribute(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields (module, name) for `module.name` and for `from module import name`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, node.attr
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from ((node.module, alias.name) for alias in node.names)


def processes(node: ast.AST) -> Iterator[str]:
    yield from (f"imports {name}" for name in _imports(node) if name in _PROCESS_MODULES)
    for module, name in _attribute(node):
        if module == "os" and name.startswith(_PROCESS_CALLS):
            yield f"uses os.{name}"
        elif name.startswith("create_subprocess_") or name in {
            "subprocess_exec",
            "subprocess_shell",
        }:
            yield f"uses {name}"


def system_calls(node: ast.AST) -> Iterator[str]:
    yield from (f"imports {name}" for name in _imports(node) if name in _C_MODULES)


def _literal(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def host_facts(node: ast.AST) -> Iterator[str]:
    yield from (f"imports {name}" for name in _imports(node) if name == "platform")
    for used in _attribute(node):
        if used in {("sys", "platform"), ("shutil", "which")}:
            yield f"uses {'.'.join(used)}"
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
        yield from ["reads $PATH"] if _literal(node.slice) == "PATH" else []
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        first = _literal(node.args[0]) if node.args else ""
        if called in {"os.environ.get", "os.getenv"} and first == "PATH":
            yield "reads $PATH"
        foreign = first.startswith(_HOST_FILES) and not first.startswith(_OWN_FILES)
        if foreign and called.rpartition(".")[2] in _READERS:
            yield f"reads {first}"


@dataclass(frozen=True)
class Door:
    """A rule, and the modules of ocisbx (a file or a package) that it leaves free."""

    check: Callable[[ast.AST], Iterator[str]]
    keepers: frozenset[str]


DOORS = {
    "processes": Door(processes, frozenset({"command"})),
    "system calls": Door(system_calls, frozenset({"syscalls"})),
    "host facts": Door(host_facts, frozenset({"probe"})),
}


def findings(door: Door, source: str) -> list[Finding]:
    """Returns line and offence of all that *source* does and only the door's keepers may do."""
    return [
        (getattr(node, "lineno", 0), offence)
        for node in ast.walk(ast.parse(source))
        for offence in door.check(node)
    ]
