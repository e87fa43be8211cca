"""The example bundles on this machine: each compiled for it, and run on every runtime here.

What a case's host.json records below its home directory is made in a directory of the test's own,
and the paths in its configuration and command are those of that directory.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ocisbx.config import SandboxConfig
from ocisbx.container.merge import merge_preset
from ocisbx.host import Host, PathKind
from ocisbx.places import find_places
from ocisbx.probe.gather import gather
from ocisbx.result import RunResult, Termination
from ocisbx.sandbox.sandbox import Sandbox
from tests.runtimes.init_container import NATIVE, Runtime
from tools.example_bundles import Example, names, read_example

pytestmark = pytest.mark.runtime

HOME = "/home/ada"
RECORDED_DISK = "8:0"
NOTES = {"project/notes.txt": "read me\n"}

# What lies in the caller's directories besides what the recorded host says.
CONTENTS: dict[str, dict[str, str]] = {
    "default": {".ssh/id_ed25519": "secret"},
    "volumes": {"data/input.txt": "input\n", "tool.ini": "[tool]\n"},
    "tool-outside-the-view": {
        ".pyenv/versions/3.13.1/bin/python3": "#!/bin/sh\necho Python 3.13.1 $*\n",
    },
    "volume-below-usr": {"share/motto.txt": "plus ultra\n"},
    "unpacked-rootfs": {"roots/bookworm/etc/issue": "A root of its own\n"},
    "hostile-paths": {"data:v2:ro/input.txt": "input\n"},
    "isolation": {"project/vendor/lib.txt": ""},
    "names-and-places": {"project/src/main.txt": ""},
}


def shows(text: str) -> Callable[[RunResult, str], None]:
    """A check of the whole of stdout; paths as on the recorded host."""

    def check(result: RunResult, home: str) -> None:
        assert result.stdout.decode() == text.replace(HOME, home)

    return check


def shows_the_hosts_network(result: RunResult, _home: str) -> None:
    namespace, _, rest = result.stdout.decode().partition("\n")
    assert namespace == os.readlink("/proc/self/ns/net")
    assert rest in (Path("/etc/resolv.conf").read_text(), "written\n")


def shows_the_environment(result: RunResult, home: str) -> None:
    lines = result.stdout.decode().removesuffix("\0").split("\0")
    variables = dict(line.split("=", 1) for line in lines)
    assert variables.pop("PATH").endswith("/usr/bin:/sbin:/bin")
    assert variables == {
        "CI": "true",
        "GREETING": 'with "quotes", $dollars\nand a second line',
        "HOME": "/root",
        "LOGNAME": "root",
        "OCISBX": "1",
        "PWD": f"{home}/project",
        "TAR_OPTIONS": "--no-same-owner",
        "TZ": "Europe/Berlin",
        "USER": "root",
    }


HOSTILE = read_example("hostile-paths").host.cwd
CALLER = f"{HOME}/project\n0\n"

# What each case shows from inside; capability sets as in capabilities(7), by bits.
SHOWS: dict[str, Callable[[RunResult, str], None]] = {
    "aarch64": shows(f"{os.uname().machine}\n"),
    "called-by-root": shows(CALLER),
    "called-by-root-old-runtime": shows(CALLER),
    "default": shows(f"{CALLER}project\n"),
    "environment": shows_the_environment,
    "host-network": shows_the_hosts_network,
    "hostile-paths": shows(f"{HOSTILE}\ninput\n"),
    "hybrid-cgroups": shows(CALLER),
    "isolation": shows("CapEff:\t00000000a00435fb\n0\nrefused\n"),
    "limits": shows("read me\n"),
    "limits-degraded": shows("256\n256\ntoo large\n"),
    "names-and-places": shows(f"{HOME}/project/src\nbuilder-7\nbuilder-7\n1\n"),
    "no-workspace": shows("/\nscratch\n"),
    "path-policy": shows(f"{CALLER}build-cache\nproject\n"),
    "preset-balanced": shows_the_hosts_network,
    "preset-coding-agent": shows(f"{CALLER}project\n"),
    "preset-locked-down": shows("read me\nrefused\nCapBnd:\t0000000000000000\n"),
    "preset-yolo": shows("CapEff:\t00000000a80425fb\nwritten\n"),
    "read-only-workspace": shows("read me\nrefused\n"),
    "seccomp-file": shows("Permission denied\nSeccomp:\t2\n"),
    "symlinked-workspace": shows(f"{HOME}/current\n{HOME}/checkouts/engine-2\n"),
    "tmpfs": shows(f"65536 /scratch\n16384 {HOME}/project/build\n"),
    "tool-outside-the-view": shows("Python 3.13.1 -V\n"),
    "unpacked-rootfs": shows(f"A root of its own\nrefused\n{HOME}/project\n"),
    "user-id": shows("1000\n1000\n/home/user\n"),
    "user-subordinate": shows("1000\nread me\n"),
    "volume-below-usr": shows("plus ultra\nlib\n"),
    "volumes": shows("input\n[tool]\nrefused\n"),
    "writable-rootfs": shows("/\n"),
}

# What a case leaves in the caller's directories, as the caller's own.
LEAVES: dict[str, str] = {
    "called-by-root": "project/made.txt",
    "called-by-root-old-runtime": "project/made.txt",
    "default": "project/made.txt",
    "hostile-paths": f"{HOSTILE.removeprefix(HOME)[1:]}/kept",
    "hybrid-cgroups": "project/made.txt",
    "preset-balanced": "project/made.txt",
    "preset-coding-agent": "project/made.txt",
    "symlinked-workspace": "checkouts/engine-2/kept",
    "user-id": "project/made.txt",
    "volumes": "cache/kept",
    "writable-rootfs": "roots/bookworm/usr/new",
}


def pairs() -> Iterator[object]:
    """Each case with each runtime here; a case that names a runtime, with those of that name."""
    for name in names():
        wanted = read_example(name).config.runtime.names
        for runtime in NATIVE:
            if not wanted or Path(runtime.path).name in wanted:
                yield pytest.param(name, runtime, id=f"{name}-{runtime.name}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory outside /tmp, since a container has a /tmp of its own."""
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        place = tmp_path / name
        place.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(place))
    with tempfile.TemporaryDirectory(prefix="ocisbx-bundles-", dir="/var/tmp") as directory:
        path = Path(directory, "ada")
        path.mkdir()
        monkeypatch.setenv("HOME", str(path))
        yield path
        monkeypatch.undo()


def make_place(kind: PathKind, path: Path) -> None:
    """Where a rule of [filesystem] led on the recorded host."""
    if kind is PathKind.DIRECTORY:
        path.mkdir(parents=True, exist_ok=True)
    elif kind is PathKind.FILE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def prepare(example: Example, home: Path) -> None:
    """Make what the recorded host has below its home directory."""

    def place(path: str) -> Path:
        return home / path.removeprefix(HOME)[1:]

    host = example.host
    below = {path: fact for path, fact in host.paths.items() if path.startswith(HOME)}
    for fact in below.values():
        make = Path.mkdir if fact.kind is PathKind.DIRECTORY else Path.touch
        place(fact.real).parent.mkdir(parents=True, exist_ok=True)
        make(place(fact.real))
        for link in fact.links:
            place(link.path).symlink_to(link.target)
    for directory, entries in host.listings.items():
        for entry in entries if directory.startswith(HOME) else ():
            path = place(f"{directory}/{entry.name}")
            if entry.kind == "symlink":
                path.symlink_to(entry.target)
            elif entry.kind == "directory":
                path.mkdir()
            else:
                path.touch()
    for one in (one for found in host.matches.values() for one in found.places):
        make_place(one.kind, place(one.real))
    texts = {path.removeprefix(HOME)[1:]: text for path, text in host.texts.items()}
    for name, text in (NOTES | CONTENTS.get(example.name, {}) | texts).items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    for path in home.glob("roots/*"):
        add_shell(path)


def add_shell(root: Path) -> None:
    """A shell and the libraries that it needs, from this machine, into a merged-usr root."""
    listed = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    for source in ("/bin/sh", *re.findall(r"(/lib\S+) \(0x", listed)):
        target = root / "usr" / source[1:].removeprefix("usr/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def here(example: Example, home: Path, runtime: Runtime) -> tuple[SandboxConfig, list[str]]:
    """The case's configuration and command, for this machine."""
    written = json.dumps({"config": example.config.said(), "argv": example.argv})
    disk = json.dumps(min(os.listdir("/sys/dev/block"), default=RECORDED_DISK))
    written = written.replace(json.dumps(RECORDED_DISK), disk)
    case = json.loads(written.replace(HOME, str(home)))
    config = SandboxConfig.build(case["config"])
    return config.updated({"runtime": {"names": [runtime.path]}}), case["argv"]


def assert_recorded(recorded: Host, seen: Host, home: str) -> None:
    """The record holds what looking at a host finds; elsewhere machines differ."""
    assert {path.replace(home, HOME) for path in seen.paths} == set(recorded.paths)
    assert set(seen.texts) == {path.replace(HOME, home) for path in recorded.texts}
    assert set(recorded.listings) <= {path.replace(home, HOME) for path in seen.listings}


def test_every_case_has_something_to_show() -> None:
    assert set(SHOWS) == set(names())


@pytest.mark.parametrize(("name", "runtime"), list(pairs()))
def test_a_case_runs_here(
    name: str, runtime: Runtime, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = read_example(name)
    prepare(example, home)
    config, argv = here(example, home, runtime)
    directory = example.host.cwd.replace(HOME, str(home))
    monkeypatch.chdir(directory)
    # In the C locale Python sets it in its own environment (PEP 538).
    monkeypatch.delenv("LC_CTYPE", raising=False)
    for variable, value in {**example.environment, "PWD": directory}.items():
        monkeypatch.setenv(variable, value)
    assert_recorded(example.host, gather(merge_preset(config)), str(home))
    result = Sandbox(config, audit=False).run(argv)
    assert result.termination is Termination.EXITED, result
    assert result.exit_code == 0, result.stderr.decode()
    SHOWS[name](result, str(home))
    assert result.runtime.path == runtime.path
    if name in LEAVES:
        info = (home / LEAVES[name]).lstat()
        assert (info.st_uid, info.st_gid) == (os.geteuid(), os.getegid())
    assert not (home / "project/build/object").exists()
    assert not Path(find_places().bundles, result.id).exists()
