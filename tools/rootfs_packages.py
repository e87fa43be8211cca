"""The distribution's side of a build: what the machine has, its package sources, mmdebstrap."""

import getpass
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.rootfs_recipe import BuildError, Recipe
from tools.rootfs_tree import SOURCE_DATE_EPOCH

# mmdebstrap and newuidmap are looked for here too: a user's PATH need not name these.
_PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
_PROGRAMS = {"dpkg": "dpkg", "mmdebstrap": "mmdebstrap", "newuidmap": "uidmap"}
_PASSED_ON = ("HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy")
_GRACE_S = 20
# Package lists, packages, the installed tree; and the tar with the unpacked tree. apt-get update
# hangs on a full disk, so that too little is refused before the start.
_SPACE_BYTES = {"extract": 150_000_000, "essential": 700_000_000, "minbase": 700_000_000}
_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")
# "extract" installs nothing, so that dpkg's list of packages must be made from the files.
_LIST_PACKAGES = (
    'for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -f "$deb" Package Version; echo; '
    'done > "$1/var/lib/dpkg/status"'
)


@dataclass(frozen=True)
class Distribution:
    """The release's codename, dpkg's architecture, and the files that name package sources."""

    suite: str
    arch: str
    sources: tuple[Path, ...]


def check_requirements() -> None:
    """Raise BuildError (69), with the administrator's command, when this machine lacks something.

    An unprivileged build maps subordinate ids (subuid(5)) with newuidmap(1); root needs neither.
    """
    unprivileged = os.geteuid() != 0
    if shutil.which("apt-get", path=_PATH) is None:
        what = "this machine has no apt-get"
        remedy = "build on Debian or Ubuntu, and copy the result"
        raise BuildError(what, remedy=remedy, exit_code=69)
    needed = {**_PROGRAMS} if unprivileged else {**_PROGRAMS, "newuidmap": ""}
    missing = [one for one in needed if needed[one] and not shutil.which(one, path=_PATH)]
    if missing:
        what = f"not installed: {', '.join(missing)}"
        remedy = f"sudo apt-get install {' '.join(needed[one] for one in missing)}"
        raise BuildError(what, remedy=remedy, exit_code=69)
    user = getpass.getuser() if unprivileged else ""
    files = [Path("/etc/subuid"), Path("/etc/subgid")]
    if unprivileged and not all(has_subordinate_ids(one, user, os.geteuid()) for one in files):
        what = f"user {user} has no subordinate ids in /etc/subuid and /etc/subgid"
        ids = "100000-165535"
        remedy = f"sudo usermod --add-subuids {ids} --add-subgids {ids} {user}"
        raise BuildError(what, remedy=remedy, exit_code=69)


def has_subordinate_ids(path: Path, user: str, uid: int) -> bool:
    """Tell whether subuid(5)'s file gives the user, by name or number, a range of 65536 ids."""
    if not path.exists():
        return False
    lines = [line.strip().split(":") for line in path.read_text().splitlines()]
    return any(
        len(one) == 3 and one[0] in {user, str(uid)} and one[2].isdigit() and int(one[2]) >= 65536
        for one in lines
    )


def check_space(recipe: Recipe, *directories: Path) -> None:
    """Raise BuildError where a directory's file system has too little room for a build."""
    needed_bytes = _SPACE_BYTES[recipe.variant]
    for directory in directories:
        free_bytes = shutil.disk_usage(directory).free
        if free_bytes < needed_bytes:
            why = f"{directory} has {free_bytes / 1e6:.0f} MB, needed {needed_bytes / 1e6:.0f} MB"
            raise no_space(recipe.name, why)


def find_distribution(recipe: Recipe) -> Distribution:
    """Return the release to build, with the machine's own sources of it; raise BuildError (69)."""
    text = Path("/etc/os-release").read_text()
    codename = re.search(r'^VERSION_CODENAME="?([a-z]+)', text, re.MULTILINE)
    suite = recipe.suite
    if suite == "host":
        suite = codename[1] if codename else "unnamed"
    listed = output(
        *["apt-get", "indextargets", "--no-release-info"],
        *["--format", "$(RELEASE) $(COMPONENT) $(SOURCESENTRY)", "Created-By: Packages"],
    )
    # Other publishers (databases, browsers) use files and release names of their own.
    pockets = {suite, f"{suite}-updates", f"{suite}-security", f"{suite}/updates"}
    entries = [line.split(" ", 2) for line in listed.splitlines() if line.count(" ") >= 2]
    found = {e[2].rpartition(":")[0] for e in entries if e[0] in pockets and e[1] == "main"}
    if not any(release == suite for release, _component, _source in entries):
        served = ", ".join(sorted({entry[0] for entry in entries})) or "nothing"
        what = f"the package sources of this machine do not serve {suite}"
        remedy = f"add {suite} to the sources of apt, or build on a machine of that release"
        raise BuildError(what, why=f"they serve {served}", remedy=remedy, exit_code=69)
    arch = output("dpkg", "--print-architecture").strip()
    return Distribution(suite, arch, tuple(Path(one) for one in sorted(found)))


def download(
    recipe: Recipe,
    distribution: Distribution,
    scratch: Path,
    step: Callable[[str], None],
    options: Sequence[str] = (),
) -> Path:
    """Build the recipe's packages into a tar in `scratch` and return its path.

    `step` is told each step; `options` are further ones of mmdebstrap's. Raise BuildError when
    mmdebstrap fails. When an exception (a signal's) comes in between, mmdebstrap is ended and has
    removed its own directory before it goes on.
    """
    archive = scratch / "root.tar"
    tail: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        _command(recipe, distribution, scratch, archive, options),
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            _follow(process, tail, step)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise _failure(recipe, tail)
    return archive


def read_versions(archive: Path) -> dict[str, str]:
    """Return the version of each package in a tar that `download` made."""
    text = output("tar", "--extract", "--to-stdout", f"--file={archive}", "./var/lib/dpkg/status")
    found = re.findall(r"^Package: (\S+)$(?:\n.+)*?\nVersion: (\S+)$", text, re.MULTILINE)
    return dict(found)


def _command(
    recipe: Recipe,
    distribution: Distribution,
    scratch: Path,
    archive: Path,
    more: Sequence[str],
) -> list[str]:
    # mmdebstrap ignores the machine's apt.conf: a proxy, a mirror's lax dates are set there.
    settings = output("apt-config", "dump").splitlines()
    kept = [line for line in settings if re.match(r"Acquire::(?!IndexTargets)", line)]
    options = scratch / "apt.conf"
    options.write_text("\n".join([*kept, ""]))
    # As root mmdebstrap mounts in the caller's namespace: a build that is killed would leave them.
    unprivileged = os.geteuid() != 0
    return [
        *([] if unprivileged else ["unshare", "--mount", "--"]),
        *["mmdebstrap", "--mode", "unshare" if unprivileged else "root", "--format", "tar"],
        *["--variant", recipe.variant, "--aptopt", str(options)],
        *(f"--include={package}" for package in recipe.packages),
        *(["--extract-hook", _LIST_PACKAGES] if recipe.variant == "extract" else []),
        *more,
        *[distribution.suite, str(archive), *map(str, distribution.sources)],
    ]


def _follow(process: subprocess.Popen[str], tail: deque[str], step: Callable[[str], None]) -> None:
    for line in process.stderr or ():
        if line.startswith("I: "):
            step(line[3:].partition(" in shell: ")[0].strip())
        else:
            tail.append(line.strip())
    process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    """End mmdebstrap's session: it removes its directory when its children are gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=_GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return


def _failure(recipe: Recipe, tail: deque[str]) -> BuildError:
    full = [line for line in tail if _NO_SPACE.search(line)]
    if full:
        return no_space(recipe.name, full[0])
    errors = [line for line in tail if line.startswith("E: ")] or list(tail)
    what = f"mmdebstrap could not build {recipe.name}"
    remedy = "mmdebstrap --verbose shows more; is the network there, and `apt-get update` sound?"
    return BuildError(what, why="; ".join(errors), remedy=remedy)


def no_space(name: str, why: str) -> BuildError:
    """Return the error of a full disk."""
    what = f"no space left to build {name}"
    remedy = "free some in /tmp and the output's directory, or name others with TMPDIR and -o"
    return BuildError(what, why=why, remedy=remedy)


def _environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    fixed = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH)}
    return {**passed_on, **fixed, "PATH": _PATH}


def output(*command: str) -> str:
    """Return what a program of the system prints; raise BuildError when it fails."""
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        what = f"{command[0]} ended with {done.returncode}"
        raise BuildError(what, why=done.stderr.strip()[-1000:])
    return done.stdout
