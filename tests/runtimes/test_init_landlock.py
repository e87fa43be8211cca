"""Landlock by the init's -w: what the mounts would allow and it does not, and what still works."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ocisbx.init import init_path, wire
from ocisbx.init.protocol import Failed, Kind, Stage, Started, Target
from ocisbx.init.selftest import SelfTest, parse_self_test
from tests.runtimes.init_container import NATIVE, Bundle, Container, Runtime, python, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.runtime
every_native = pytest.mark.parametrize("runtime", NATIVE, ids=lambda one: one.name)
one_native = pytest.mark.parametrize("runtime", NATIVE[-1:], ids=lambda one: one.name)

ABI = parse_self_test(
    subprocess.run([init_path(), "--self-test"], capture_output=True, check=True).stdout
).landlock
HOLDS = ABI >= 2
TRUNCATES = "EACCES" if ABI >= 3 else "done"
DEVICE_IOCTLS = "EACCES" if ABI >= 5 else "done"
SCOPED = "EPERM" if ABI >= 6 else "done"

ATTEMPT = """
import errno, fcntl, json, os, socket, sys
def attempt(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def write(path, flags=0):
    os.close(os.open(path, os.O_WRONLY | flags, 0o600))
def bind(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path)
"""

# In a place: every way to change something.
CHANGES = (
    ATTEMPT
    + """
os.umask(0)
def changes(place):
    def at(name):
        return f"{place}/{name}"
    return {
        "write": attempt(write, at("file")),
        "append": attempt(write, at("file"), os.O_APPEND),
        "create": attempt(write, at("new"), os.O_CREAT),
        "unnamed": attempt(write, place, os.O_TMPFILE),
        "mkdir": attempt(os.mkdir, at("folder")),
        "fifo": attempt(os.mkfifo, at("fifo")),
        "socket": attempt(bind, at("socket")),
        "symlink": attempt(os.symlink, "x", at("symlink")),
        "link": attempt(os.link, at("file"), at("link")),
        "link below": attempt(os.link, at("file"), at("there/link")),
        "rename": attempt(os.rename, at("a"), at("b")),
        "rename below": attempt(os.rename, at("c"), at("there/c")),
        "rename a directory": attempt(os.rename, at("moved"), at("there/moved")),
        "unlink": attempt(os.unlink, at("gone")),
        "rmdir": attempt(os.rmdir, at("empty")),
        "truncate": attempt(os.truncate, at("file"), 0),
        "read": attempt(os.close, os.open(at("file"), os.O_RDONLY)),
        "list": attempt(os.listdir, place),
    }
"""
)
READS = ("read", "list")


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """Two alike places in one directory, which a container sees through one writable mount."""
    share = tmp_path / "share"
    for place in ("in", "out"):
        for name in ("there", "moved", "empty"):
            (share / place / name).mkdir(parents=True)
        for name in ("file", "a", "c", "gone", "crossing"):
            (share / place / name).write_text("content")
    return share


def seen(bundle: Bundle) -> Any:
    """The JSON that the payload prints."""
    report, out, err, _ = run(bundle)
    assert (report.kind, report.status) == (Kind.EXITED, 0), err
    return json.loads(out)


@every_native
def test_what_the_mount_allows_is_refused_outside_the_paths(
    runtime: Runtime, share: Path, tmp_path: Path
) -> None:
    script = f"""{CHANGES}
before = {{"rename out": attempt(os.rename, "/share/in/crossing", "/share/out/new"),
          "rename in": attempt(os.rename, "/share/out/crossing", "/share/in/new"),
          "link out": attempt(os.link, "/share/in/file", "/share/out/other"),
          "link in": attempt(os.link, "/share/out/file", "/share/in/other")}}
print(json.dumps([changes("/share/in"), changes("/share/out"), before]))
"""
    rules = ("/share/in",)
    found = seen(Bundle(tmp_path, runtime, python(script), binds={"/share": share}, rules=rules))
    inside, outside, across = found
    assert set(inside.values()) == {"done"}, inside
    expected = dict.fromkeys(inside, "EACCES" if HOLDS else "done")
    if HOLDS:
        expected |= dict.fromkeys(READS, "done") | {"truncate": TRUNCATES}
        assert set(across.values()) <= {"EACCES", "EXDEV"}, across
        assert (share / "out" / "crossing").read_text() == "content"
    assert outside == expected


@one_native
def test_without_rules_it_is_the_mounts_word(runtime: Runtime, share: Path, tmp_path: Path) -> None:
    """What the test above would see if the init did nothing."""
    script = f'{CHANGES}\nprint(json.dumps(changes("/share/out")))'
    found = seen(Bundle(tmp_path, runtime, python(script), binds={"/share": share}))
    assert set(found.values()) == {"done"}, found


@one_native
def test_a_rule_for_a_file_and_one_for_nothing(
    runtime: Runtime, share: Path, tmp_path: Path
) -> None:
    script = f"""{ATTEMPT}
print(json.dumps([
    attempt(write, "/share/in/file"), attempt(os.truncate, "/share/in/file", 0),
    attempt(os.unlink, "/share/in/file"), attempt(write, "/share/in/a"),
]))
"""
    rules = ("/share/in/file", "/missing", "/share/in/file/below", "/share/" + "x" * 200)
    found = seen(Bundle(tmp_path, runtime, python(script), binds={"/share": share}, rules=rules))
    assert found == (["done", "done", "EACCES", "EACCES"] if HOLDS else ["done"] * 4)


@one_native
def test_what_lies_below_a_path_counts_also_when_it_is_mounted(
    runtime: Runtime, share: Path, tmp_path: Path
) -> None:
    script = f"""{ATTEMPT}
print(json.dumps([attempt(write, "/tmp/share/in/file"), attempt(write, "/tmp/x", os.O_CREAT)]))
"""
    bundle = Bundle(tmp_path, runtime, python(script), binds={"/tmp/share": share}, rules=("/tmp",))
    assert seen(bundle) == ["done", "done"]


@one_native
def test_devices_beneath_a_path_take_ioctls(runtime: Runtime, tmp_path: Path) -> None:
    script = f"""{ATTEMPT}
RNDGETENTCNT = 0x80045200
with open("/dev/urandom", "rb") as device:
    print(json.dumps([attempt(fcntl.ioctl, device, RNDGETENTCNT, bytes(4)),
                      attempt(write, "/dev/null"), attempt(write, "/proc/self/comm")]))
"""
    bundle = Bundle(tmp_path / "with", runtime, python(script), rules=("/dev", "/proc"))
    assert seen(bundle) == ["done"] * 3
    bundle = Bundle(tmp_path / "without", runtime, python(script), rules=("/tmp",))
    refused = "EACCES" if HOLDS else "done"
    assert seen(bundle) == [DEVICE_IOCTLS, refused, refused]


@every_native
def test_signals_and_sockets_stay_inside(runtime: Runtime, tmp_path: Path) -> None:
    """The payload and its descendants are one domain, also after an exec."""
    script = f"""{ATTEMPT}
import signal
one = socket.socket(socket.AF_UNIX)
one.bind("\\0inside")
one.listen()
connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\\\0inside'); print('up')"
sleep = "import time; time.sleep(60)"
python = [sys.executable, "-I", "-S", "-c"]
import subprocess
text = subprocess.run([*python, connect], stdout=subprocess.PIPE, check=True).stdout.decode()
child = subprocess.Popen([*python, sleep])
child.terminate()
group = subprocess.Popen([*python, sleep], start_new_session=True)
os.killpg(group.pid, signal.SIGKILL)
print(json.dumps([text, child.wait(), group.wait(), attempt(os.kill, 1, 0)]))
"""
    bundle = Bundle(tmp_path, runtime, python(script), rules=("/tmp",))
    assert seen(bundle) == ["up\n", -15, -9, SCOPED]


@every_native
def test_the_init_still_signals_and_ends_all(runtime: Runtime, tmp_path: Path) -> None:
    argv = ["sh", "-c", "sleep 60 & sleep 60"]
    with Container(Bundle(tmp_path, runtime, argv, rules=("/tmp",))) as container:
        container.go()
        container.expect(Started)
        wire.send_signal(container.sock, 15, Target.GROUP)
        report, code = container.finish()
    assert (report.kind, report.status, code) == (Kind.SIGNALED, 15, 143)


@every_native
def test_without_no_new_privileges_the_start_fails(runtime: Runtime, tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, runtime, ["true"], rules=("/tmp",), no_new_privileges=False)
    with Container(bundle) as container:
        container.go()
        if HOLDS:
            assert container.expect(Failed) == Failed(Stage.LANDLOCK, errno.EPERM)
            wire.send_end(container.sock)
            assert container.wait() == 125


def _refusing(number: int) -> dict[str, Any]:
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [f"SCMP_ARCH_{os.uname().machine.upper()}"],
        "syscalls": [
            {
                "names": ["landlock_create_ruleset"],
                "action": "SCMP_ACT_ERRNO",
                "errnoRet": number,
            }
        ],
    }


@one_native
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_kernel_without_it_is_no_failure(runtime: Runtime, number: int, tmp_path: Path) -> None:
    """landlock(7): not compiled in, or not switched on at boot."""
    script = f'{ATTEMPT}\nprint(json.dumps(attempt(write, "/dev/null")))'
    bundle = Bundle(tmp_path, runtime, python(script), rules=("/tmp",), seccomp=_refusing(number))
    assert seen(bundle) == "done"


@one_native
def test_any_other_refusal_is_one(runtime: Runtime, tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, runtime, ["true"], rules=("/tmp",), seccomp=_refusing(errno.EINVAL))
    with Container(bundle) as container:
        container.go()
        assert container.expect(Failed) == Failed(Stage.LANDLOCK, errno.EINVAL)


@one_native
def test_standalone_the_callers_stdio_stays_what_it_was(runtime: Runtime, tmp_path: Path) -> None:
    """A file that was given for writing may be opened anew by its name in /dev; one that was given
    for reading is not writable thereby."""
    given, out = tmp_path / "given", tmp_path / "out"
    given.write_text("kept")
    script = "echo first; (echo x > /dev/stdin) 2> /dev/null || echo refused; echo y >> /dev/stdout"
    argv = ["sh", "-c", script]
    bundle = Bundle(tmp_path / "bundle", runtime, argv, rules=("/dev",))
    with given.open("rb") as source, out.open("wb") as target:
        stdio = (source.fileno(), target.fileno(), target.fileno())
        with Container(bundle, driven=False, stdio=stdio) as container:
            assert container.wait() == 0
    assert out.read_text() == ("first\nrefused\ny\n" if HOLDS else "first\ny\n")
    assert given.read_text() == ("kept" if HOLDS else "x\n")


@one_native
def test_standalone_a_failure_is_one_line(runtime: Runtime, tmp_path: Path) -> None:
    err = tmp_path / "err"
    bundle = Bundle(
        tmp_path / "bundle", runtime, ["true"], rules=("/tmp",), seccomp=_refusing(errno.EPERM)
    )
    with err.open("wb") as target:
        fds = (target.fileno(),) * 3
        with Container(bundle, driven=False, stdio=fds) as container:
            assert container.wait() == 125
    assert err.read_text() == "ocisbx-init: landlock: operation not permitted (errno 1)\n"


@pytest.mark.parametrize(
    "words",
    [[], ["-w"], ["-w", "/tmp"], ["-w", "relative", "--", "true"], ["-w", "--", "true"],
     ["-x", "--", "true"], ["true"], ["--self-test", "x"]],
)  # fmt: skip
def test_a_wrong_command_line_is_refused(words: list[str]) -> None:
    done = subprocess.run([init_path(), *words], capture_output=True, check=False)
    usage = b"ocisbx-init: usage: ocisbx-init [-w /ABS/PATH]... -- [COMMAND [ARG...]]\n"
    assert (done.returncode, done.stdout, done.stderr) == (125, b"", usage)


@every_native
def test_the_self_test_of_a_payload(runtime: Runtime, tmp_path: Path) -> None:
    bundle = Bundle(
        tmp_path, runtime, ["/ocisbx-init", "--self-test"], capabilities=("CAP_KILL",), rules=("/",)
    )
    report, out, err, _ = run(bundle)
    assert (report.status, err) == (0, b"")
    found = parse_self_test(out)
    bit = 1 << 5
    assert found == SelfTest(
        no_new_privs=True,
        seccomp=0,
        cap_inh=bit,
        cap_prm=bit,
        cap_eff=bit,
        cap_bnd=bit,
        cap_amb=found.cap_amb,
        groups=found.groups,
        landlock=ABI,
        clone=0,
        clone3=errno.EINVAL,
        openat=errno.EROFS,
        keyctl=0,
        mount=errno.EPERM,
        personality=0,
        unshare=0,
    )


def test_the_self_test_needs_no_container_and_leaves_nothing() -> None:
    mounts = "/proc/self/mountinfo"
    with open(mounts, "rb") as file:
        before = file.read()
    done = subprocess.run([init_path(), "--self-test"], capture_output=True, check=True)
    assert parse_self_test(done.stdout).clone == 0
    with open(mounts, "rb") as file:
        assert file.read() == before
    assert not os.path.lexists("/.ocisbx-self-test")
