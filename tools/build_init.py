"""Compiles the programs of ocisbx/init: small, static, without a libc.

Used by hatchling, as the hook that puts them into a wheel, and as a program
(`python tools/build_init.py`) by tools/run. A C compiler of the machine builds for the machine
itself; PyPI's ziglang, where it can be imported, builds for every architecture of TARGETS.
"""

import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE_DIR = ROOT / "ocisbx" / "init"
OUT_DIR = SOURCE_DIR / "bin"

# Program: its source files, as patterns in SOURCE_DIR. Every header there belongs to all of them.
PROGRAMS = {
    "init": ("init*.c",),
    "cell": ("cell*.c",),
}
# Architecture, as os.uname() names it: target of zig.
TARGETS = {"x86_64": "x86_64-linux-musl", "aarch64": "aarch64-linux-musl"}
# The programs define _start themselves and make system calls only: no start files, no stack
# protector (it needs a libc), no unwind tables, nothing that varies from one build to the next.
FLAGS = (
    "-std=gnu11", "-Os", "-Wall", "-Wextra", "-static", "-nostdlib", "-ffreestanding",
    "-fno-builtin", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
    "-fno-pie", "-no-pie", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack",
)  # fmt: skip


class BuildError(Exception):
    """No compiler could build the programs; the message holds what each of them said."""


def compilers(arch: str) -> list[list[str]]:
    """Returns the command prefixes that can build for *arch*, the machine's own compiler first."""
    found = []
    own = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if own and arch == platform.machine():
        # One segment for headers and code, half the size; zig's linker does so by itself.
        found.append([own, "-Wl,-z,noseparate-code"])
    if importlib.util.find_spec("ziglang"):
        found.append([sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[arch]])
    return found


def sources(source_dir: Path, program: str) -> list[Path]:
    return sorted({path for pattern in PROGRAMS[program] for path in source_dir.glob(pattern)})


def digest(source_dir: Path) -> str:
    """Returns a hash of everything that goes into the programs."""
    state = hashlib.sha256(repr((PROGRAMS, FLAGS)).encode())
    for path in sorted(source_dir.glob("*.[ch]")):
        state.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


def compile_one(command: list[str], inputs: list[Path], output: Path) -> str:
    """Compiles one program, replacing *output* at once; returns what the compiler complained of."""
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        made = Path(scratch) / output.name
        argv = [*command, *FLAGS, "-o", str(made), *map(str, inputs)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{' '.join(argv)}\n{done.stderr}"
        made.chmod(0o755)
        made.replace(output)
    return ""


def build(source_dir: Path, out_dir: Path, arch: str) -> list[Path]:
    """Builds every program for *arch* unless sources and flags are those of the last build.

    Returns the paths of the programs, `ocisbx-NAME-ARCH` in *out_dir*.
    Raises BuildError where no compiler for *arch* is there, or none accepts the sources.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    outputs = {name: out_dir / f"ocisbx-{name}-{arch}" for name in PROGRAMS}
    stamp, wanted = out_dir / f".stamp-{arch}", digest(source_dir)
    if stamp.is_file() and stamp.read_text() == wanted and all(map(Path.is_file, outputs.values())):
        return list(outputs.values())
    complaints = []
    for command in compilers(arch):
        failed = [
            complaint
            for name, output in outputs.items()
            if (complaint := compile_one(command, sources(source_dir, name), output))
        ]
        if not failed:
            stamp.write_text(wanted)
            return list(outputs.values())
        complaints += failed
    raise BuildError("\n".join(complaints) or f"no C compiler for {arch}")


def build_all(source_dir: Path, out_dir: Path) -> list[str]:
    """Builds for the machine's architecture, and for the others where a compiler for them is there.

    Returns the architectures built. Raises BuildError when the machine's own cannot be built.
    """
    native = platform.machine()
    built = []
    for arch in sorted(TARGETS, key=lambda arch: arch != native):
        if arch == native or compilers(arch):
            build(source_dir, out_dir, arch)
            built.append(arch)
    return built


def get_build_hook() -> type[Any]:
    """Returns the class that hatchling instantiates; hatchling looks for this name."""
    # hatchling is not there when this file is run as a program.
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # noqa: PLC0415

    class InitBuildHook(BuildHookInterface[Any]):
        PLUGIN_NAME = "custom"

        def dependencies(self) -> list[str]:
            return [] if compilers(platform.machine()) else ["ziglang>=0.13"]

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel" or sys.platform != "linux":
                return
            source_dir = Path(self.root, "ocisbx", "init")
            built = build_all(source_dir, source_dir / "bin")
            if set(built) != set(TARGETS) and version != "editable":
                build_data["tag"] = f"py3-none-linux_{built[0]}"

    return InitBuildHook


if __name__ == "__main__":
    try:
        print(*build_all(SOURCE_DIR, OUT_DIR))
    except BuildError as error:
        sys.exit(f"ocisbx: the init cannot be built: {error}")
