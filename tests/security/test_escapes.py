"""Ways out that were holes of runtimes and of their drivers, tried for real on every runtime."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.config import SandboxConfig
from ocisbx.errors import ConfigError, OcisbxError
from tests.security.conftest import refused
from tests.security.scene import PROBE, SECRET, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.box import Box
    from tests.security.scene import Scene

pytestmark = [pytest.mark.runtime, pytest.mark.security]


@pytest.fixture
def scene(box: Box) -> Iterator[Scene]:
    with surroundings(box) as made:
        yield made


def output_or_refusal(box: Box, script: str, **fields: Any) -> bytes:
    """What the payload printed; nothing where ocisbx or the runtime refused to start it."""
    try:
        result = box.sh(script, **fields)
    except OcisbxError:
        return b""
    return result.stdout + result.stderr


# ---------------------------------------------------------------------------- the root's own names
@refused
@pytest.mark.parametrize("name", ["dev", "proc", "sys", "etc"])
@pytest.mark.parametrize("kind", ["read-only", "writable"])
def test_a_root_with_a_symlink_for_what_the_runtime_mounts(box: Box, name: str, kind: str) -> None:
    """CVE-2026-41579, CVE-2023-27561, CVE-2026-47766: it would mount, and create, outside."""
    root, outside = box.base / "root", box.base / "outside"
    outside.mkdir()
    for directory in ("dev", "proc", "sys", "etc", "usr"):
        (root / directory).mkdir(parents=True)
    (root / name).rmdir()
    (root / name).symlink_to(outside)
    isolation = {"read_only_root": kind == "read-only"}
    with pytest.raises(ConfigError, match=f"/{name} is a symlink"):
        box.run(["true"], rootfs=str(root), isolation=isolation)
    assert list(outside.iterdir()) == []


def test_a_payload_prepares_a_writable_root_for_the_next_call(scene: Scene) -> None:
    box, root = scene.box, scene.box.base / "root"
    for directory in ("dev", "proc", "sys", "etc", "usr", "tmp"):
        (root / directory).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    fields: dict[str, Any] = {
        "rootfs": str(root),
        "isolation": {"read_only_root": False},
        "volumes": ["/usr:/usr:ro"],
    }
    result = box.sh(f"mv /etc /old; ln -s {scene.secret.parent} /etc", **fields)
    assert result.exit_code == 0, result.stderr
    with pytest.raises(ConfigError, match="/etc is a symlink"):
        box.run(["true"], **fields)
    assert [path.name for path in scene.secret.parent.iterdir()] == ["secret"]


def test_a_payload_puts_a_symlink_where_a_volume_was(scene: Scene) -> None:
    """Its next call must not be shown what the link leads to."""
    box = scene.box
    (box.workspace / "data").mkdir()
    sandbox = box.sandbox(volumes=[f"{box.workspace}/data:/data"])
    swap = f"rmdir data && ln -s {scene.secret.parent} data"
    assert sandbox.run(["sh", "-c", swap]).exit_code == 0
    with pytest.raises(ConfigError, match="the payload can change"):
        sandbox.run(["cat", "/data/secret"])


def test_a_payload_puts_a_symlink_before_a_nested_workspace(scene: Scene) -> None:
    box = scene.box
    (box.workspace / "project").mkdir()
    outer = f"{box.workspace}:/all"
    fields: dict[str, Any] = {"workspace": f"{box.workspace}/project", "volumes": [outer]}
    swap = f"mv /all/project /all/old && ln -s {scene.secret.parent} /all/project"
    box.sh(swap, **fields)
    with contextlib.suppress(ConfigError):
        assert SECRET.encode() not in box.sh("cat secret", **fields).stdout


# ------------------------------------------------------------------------- working directories
PLACES = (
    *(f"/proc/self/fd/{number}" for number in range(3, 12)),
    "/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/thread-self/fd/7", "/dev/fd/7",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_working_directory_below_proc(scene: Scene, place: str) -> None:
    """CVE-2024-21626: a descriptor of the host's directory is open in the driver, inheritable."""
    script = "cat secret ../secret 2>/dev/null; pwd"
    assert SECRET.encode() not in output_or_refusal(scene.box, script, workdir=place)


def test_a_working_directory_that_is_a_symlink_to_one(scene: Scene) -> None:
    (scene.box.workspace / "here").symlink_to(f"/proc/self/fd/{scene.leaked}")
    script = "cat secret ../secret 2>/dev/null; pwd"
    for place in (f"{scene.box.workspace}/here", f"{scene.box.workspace}/here/.."):
        assert SECRET.encode() not in output_or_refusal(scene.box, script, workdir=place)


# ---------------------------------------------------------------------------------- descriptors
@contextlib.contextmanager
def many_inheritable(directory: Path) -> Iterator[None]:
    """Twenty numbers, so that whatever is counted on from 3 meets one."""
    first = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    found = [first, *(os.dup(first) for _ in range(19))]
    for descriptor in found:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 -- it takes no keyword
    try:
        yield
    finally:
        for descriptor in found:
            os.close(descriptor)


def test_inheritable_descriptors_stay_out(scene: Scene) -> None:
    """CVE-2016-9962 and its kin; LISTEN_FDS and the like are set, too (`surroundings`)."""
    with many_inheritable(scene.secret.parent):
        result = scene.box.python("import os; print(*sorted(os.listdir('/proc/self/fd')))")
    # The fourth is that of the directory which is listed.
    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]


def test_notify_socket_stays_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """crun would bind a directory with a socket of the host at its path, runc would relay it."""
    path = scene.box.base / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.setblocking(False)  # noqa: FBT003 -- it takes no keyword
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        mounts = scene.box.text(f"cut -d' ' -f5 /proc/self/mountinfo; test ! -e {path}").split()
        assert not [target for target in mounts if target in (str(path), "/run", "/run/notify")]
        with pytest.raises(BlockingIOError):
            listener.recv(100)


# ---------------------------------------------------------------- the runtime's and init's binaries
OVERWRITE = """
import errno, glob, json, os, sys
answers = {}
for path in glob.glob("/proc/[0-9]*/exe") + ["/proc/self/exe", "/.ocisbx/init"]:
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        try:
            os.close(os.open(path, flags))
            answers[path] = "opened"
        except OSError as error:
            answers[path] = errno.errorcode[error.errno]
print(json.dumps(answers))
"""
SCRIPT = "#!/proc/self/exe\n"


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_no_binary_can_be_overwritten(box: Box) -> None:
    """CVE-2019-5736, with a runtime that belongs to the very user that the payload is outside."""
    own = box.base / box.runtime.name
    shutil.copy(box.runtime.path, own)
    own.chmod(0o755)
    before = digest(str(own))
    mine = with_runtime(box, str(own))
    result = mine.python(OVERWRITE)
    answers = json.loads(result.stdout)
    assert set(answers.values()) <= {"EACCES", "EROFS", "ETXTBSY", "EPERM"}, answers
    assert "/proc/1/exe" in answers
    # The other half of the attack: to be executed as the interpreter of the next program.
    for name in ("/proc/self/exe", "./script"):
        (box.workspace / "script").write_text(SCRIPT)
        (box.workspace / "script").chmod(0o755)
        mine.run([name])
    assert digest(str(own)) == before
    assert mine.sh("echo works").stdout == b"works\n"


def with_runtime(box: Box, path: str) -> Box:
    """The same box with the runtime at another place."""
    made = copy.copy(box)
    made.runtime = box.runtime.model_copy(update={"path": path})
    return made


# ------------------------------------------------------------------------------------ hostile words
HOSTNAMES = ("../x", "a/b", "new\nline", "", "-x", "x" * 300, "nul\0", "a b", "\x1b[2J", "ü")
VARIABLES = ("", "A=B", "nul\0", "new\nline=x", "=", "LD_PRELOAD\0x")


@pytest.mark.parametrize("hostname", HOSTNAMES, ids=ascii)
def test_hostile_host_names_are_refused(hostname: str) -> None:
    with pytest.raises(ConfigError):
        SandboxConfig(hostname=hostname)


@pytest.mark.parametrize("name", VARIABLES, ids=ascii)
def test_hostile_variables_are_refused(name: str) -> None:
    for table in ({"set": {name: "x"}}, {"inherit": [name]}):
        with pytest.raises(ConfigError):
            SandboxConfig.build({"env": table})


def test_values_are_data(box: Box) -> None:
    """What looks like JSON, a slot of the template or another variable stays one value."""
    values = {"A": '"],"x":["', "B": "@@args@@", "C": "x\nLD_PRELOAD=/evil.so", "D": "\\u0000"}
    result = box.run(["env", "-0"], env={"set": values})
    shown = dict(entry.split("=", 1) for entry in result.stdout.decode().split("\0") if entry)
    assert {name: shown[name] for name in values} == values
    assert "LD_PRELOAD" not in shown


def test_hostile_arguments_are_data(box: Box) -> None:
    words = ["--", "-x", '"],"cwd":"/', "@@id@@", "\x1b[2J", "a\nb", "$(touch made)", "`id`"]
    result = box.run(["printf", "%s\\0", *words])
    assert result.stdout.decode().split("\0")[:-1] == words
    assert list(box.workspace.iterdir()) == []


def test_the_read_only_volume_stays_as_it_was(scene: Scene) -> None:
    """Not by a rename over, a hard link out of it, a mount or a descriptor reopened."""
    script = f"""
    cd {PROBE} && mv tests x; ln tests/security/inside/main.py {scene.box.workspace}/hard
    exec 9<tests/security/inside/main.py; echo x >/proc/self/fd/9; echo x >/dev/fd/9
    mount --bind {scene.box.workspace} {PROBE}; chmod 777 .; touch -d @0 tests; echo tried
    """
    before = {path: path.lstat().st_mtime_ns for path in scene.probe.rglob("*")}
    result = scene.box.sh(script, volumes=[f"{scene.probe}:{PROBE}:ro"])
    assert result.stdout == b"tried\n"
    assert {path: path.lstat().st_mtime_ns for path in scene.probe.rglob("*")} == before
    assert not (scene.box.workspace / "hard").exists()
