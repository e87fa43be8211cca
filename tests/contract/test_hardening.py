"""Hardening that every preset but yolo has, seen from inside, on each runtime."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import ocisbx
from ocisbx.errors import ConfigError, PolicyDenied
from ocisbx.presets import PRESETS
from ocisbx.quirks import find_quirks
from ocisbx.result import EnforcementState
from tests.contract.conftest import refused
from tests.runtimes.test_seccomp_containers import CALLS, PROBE, on_x86_64

if TYPE_CHECKING:
    from tests.box import Box

pytestmark = pytest.mark.runtime

DEV_AND_SYS = "/dev holds the default devices only, and there is no /sys"
NPROC, FSIZE = "RLIMIT_NPROC", "RLIMIT_FSIZE"


def seen(box: Box, script: str, *arguments: str, **fields: Any) -> Any:
    """What a Python script inside prints as JSON."""
    result = box.python(script, *arguments, **fields)
    assert result.exit_code == 0, (result.termination, result.stderr)
    return json.loads(result.stdout)


# --------------------------------------------------------------------------------------- rlimits
@pytest.mark.parametrize("preset", ["coding-agent", "locked-down"])
def test_rlimits_are_finite(box: Box, preset: str) -> None:
    script = (
        "import json, resource as r\n"
        "names = [n for n in dir(r) if n.startswith('RLIMIT_')]\n"
        "print(json.dumps({n: r.getrlimit(getattr(r, n)) for n in names}))"
    )
    limits = seen(box, script, preset=preset)
    assert limits["RLIMIT_CORE"] == [0, 0]
    wished = PRESETS[preset].fields["limits"]
    assert limits[FSIZE] == list(wished["rlimits"][FSIZE])
    # Where a cgroup holds the processes, its limit is the one that is met.
    held = box.run(["true"], preset=preset).enforcement["pids"].state
    assert (limits[NPROC] == [wished["pids"]] * 2) == (held is EnforcementState.UNSUPPORTED)
    assert 0 < limits["RLIMIT_NOFILE"][1] <= 65536


def test_a_file_is_bounded_and_the_streams_are_not(box: Box) -> None:
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "for place in ('/tmp/x', os.getcwd() + '/x'):\n"
        "    with open(place, 'wb', 0) as f:\n"
        "        f.write(b'x' * 8192)\n"
        "        try: f.write(b'x')\n"
        "        except OSError as e: print(e.errno, file=sys.stderr)\n"
        "sys.stdout.write('x' * 100_000)\n"
    )
    result = box.python(script, limits={"rlimits": {"fsize": 8192}})
    assert result.stderr.split() == [b"27", b"27"]
    assert (result.exit_code, len(result.stdout)) == (0, 100_000)


BOMB = (
    "import os, time\n"
    "count = 0\n"
    "try:\n"
    "    while count < 500:\n"
    "        if os.fork() == 0: time.sleep(600)\n"
    "        count += 1\n"
    "except OSError as e: print(count, e.errno)\n"
)


def test_a_fork_bomb_stops_at_the_number_of_processes(box: Box) -> None:
    """Counted for each container by itself (Linux 5.14): init, payload, and crun's own process."""
    result = box.python(BOMB, limits={"rlimits": {"nproc": 40}})
    assert result.stdout in (b"38 11\n", b"37 11\n"), (result.termination, result.stderr)


def test_containers_do_not_take_processes_from_each_other(box: Box) -> None:
    at_once = 12
    sandbox = box.sandbox(limits={"rlimits": {"nproc": 8}})
    barrier = threading.Barrier(at_once)

    def one(number: int) -> tuple[int | None, bytes]:
        barrier.wait()
        wait = f"while [ $(ls | wc -l) -lt {at_once} ]; do sleep 0.05; done"
        result = sandbox.run(["sh", "-c", f"touch {number}; {wait}"])
        return result.exit_code, result.stderr

    with ThreadPoolExecutor(at_once) as pool:
        assert list(pool.map(one, range(at_once))) == [(0, b"")] * at_once


# ------------------------------------------------------------------- groups, clocks, keys, the rest
def test_no_group_of_the_callers(box: Box) -> None:
    """Nothing but its own, and what Linux lets no ordinary user drop: that is told."""
    script = "import json, os; print(json.dumps([os.getgid(), os.getgroups()]))"
    extra = set(os.getgroups()) - {os.getgid()}
    quirks = find_quirks(box.runtime.name, box.runtime.version)
    for user, gid in ((None, 0), ("1000", 1000), ("1000:1000", 1000)):
        mapped = quirks.maps_any_id
        if user is not None and not box.maps_others:
            continue
        keeps_own = user is not None and not mapped and not quirks.user_kernel
        own, groups = seen(box, script, user=user)
        assert own == gid
        kept = {65534} if extra and not quirks.user_kernel else set()
        assert set(groups) - {gid} == kept | ({0} if keeps_own else set())
        how = box.run(["true"], user=user).enforcement["user_namespace"].how
        assert ("groups" in how) == bool(kept or keeps_own)


def test_clocks_of_its_own_that_show_the_same_time(box: Box) -> None:
    script = (
        "import json, os, time\n"
        "own = '/proc/self/ns/time'\n"
        "print(json.dumps([os.readlink(own) if os.path.lexists(own) else '', time.monotonic(),"
        " time.clock_gettime(time.CLOCK_BOOTTIME)]))"
    )
    import time  # noqa: PLC0415 -- beside the script's own

    before = [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    namespace, *clocks = seen(box, script)
    after = [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    if box.lacks("namespaces are the host kernel's"):
        return
    can = find_quirks(box.runtime.name, box.runtime.version).time_namespace
    assert (namespace != os.readlink("/proc/self/ns/time")) == can
    for low, value, high in zip(before, clocks, after, strict=True):
        assert low <= value <= high


# keyctl(2): KEYCTL_JOIN_SESSION_KEYRING is 1, KEYCTL_GET_KEYRING_ID 0, the session's keyring -3.
KEYRING = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
if "join" in sys.argv:
    assert libc.syscall(number, 1, None) > 0
print(libc.syscall(number, 0, ctypes.c_int(-3), 0), flush=True)
"""
CALLER = """
import sys, ocisbx
exec(sys.argv[2])
fields = {"workspace": "none", "isolation": {"seccomp": "none"}, "audit": False}
sandbox = ocisbx.Sandbox(runtime={"names": [sys.argv[3]]}, **fields)
result = sandbox.run(["/usr/bin/python3", "-I", "-S", "-c", sys.argv[2]])
print(result.stdout.decode() or result)
"""


def test_a_session_keyring_of_its_own(box: Box) -> None:
    """Even without a filter, which refuses keyctl(2), the keys of the caller's session are not
    there. In a process of its own: joining a session is for good."""
    command = [sys.executable, "-P", "-c", CALLER, "join", KEYRING, box.runtime.path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    callers, containers = map(int, done.stdout.split())
    assert callers > 0
    # gVisor's own kernel had no keyrings at all.
    assert containers > 0 or find_quirks(box.runtime.name, box.runtime.version).user_kernel
    assert containers != callers


@on_x86_64
def test_what_the_filter_answers(box: Box) -> None:
    """Each call by its arguments, as the profile says, whoever loads it."""
    asked = json.dumps({name: (*call[:2], 0) for name, call in CALLS.items()})
    answers = seen(box, PROBE, asked)
    if find_quirks(box.runtime.name, box.runtime.version).user_kernel:
        # gVisor's kernel answers in its own way; what is not refused is its own as well.
        assert answers["personality(ADDR_NO_RANDOMIZE)"] != 0
        return
    assert answers.pop("Seccomp") == "2"
    assert not {name: answer for name, answer in answers.items() if answer not in CALLS[name][2]}


def test_terminals_are_bounded(box: Box) -> None:
    script = (
        "import json, os\n"
        "made = []\n"
        "try:\n"
        "    while len(made) < 300: made.append(os.openpty())\n"
        "    print(json.dumps([300, 0]))\n"
        "except OSError as e: print(json.dumps([len(made), e.errno]))"
    )
    # ENOSPC (28), not EMFILE.
    lacking = box.lacks("a container has at most 256 terminals")
    assert seen(box, script) == ([300, 0] if lacking else [256, 28])


def test_scratch_that_can_be_written_is_bounded(box: Box) -> None:
    for line in box.text("cat /proc/self/mountinfo").splitlines():
        left, right = line.split(" - ")
        options, kind, superblock = left.split()[5], right.split()[0], right.split()[2].split(",")
        if left.split()[4] == "/dev" and box.lacks(DEV_AND_SYS):
            continue
        bounds = ["size="] + ["nr_inodes="] * (not box.lacks("tmpfs have a bound on inodes"))
        if kind == "tmpfs" and "ro" not in options.split(","):
            for bound in bounds:
                assert any(option.startswith(bound) for option in superblock), line


def test_the_kernel_spares_nobody_inside(box: Box) -> None:
    assert int(box.text("cat /proc/self/oom_score_adj")) >= 0


# ---------------------------------------------------------------------------------------- network
NETWORK = """
import json, os, socket
def reach(family, address):
    try:
        with socket.create_server((address, 0), family=family) as server:
            socket.create_connection(server.getsockname()[:2], 2).close()
        return "up"
    except OSError as e: return e.strerror
lines = open("/proc/net/route").read().splitlines()
table = "/proc/net/ipv6_route"
six = open(table).read().splitlines() if os.path.exists(table) else []
print(json.dumps({
    "names": [name for _, name in socket.if_nameindex()],
    "four": reach(socket.AF_INET, "127.0.0.1"),
    "six": reach(socket.AF_INET6, "::1"),
    "routes": lines[1:] + [line for line in six if line.split()[-1] != "lo"],
    "devices": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
}))
"""


def test_network_none_has_both_loopbacks_and_no_way_out(box: Box) -> None:
    found = seen(box, NETWORK)
    if not os.path.exists("/proc/net/if_inet6"):
        assert found.pop("six") != "up"
        found["six"] = "up"
    assert found == {"names": ["lo"], "four": "up", "six": "up", "routes": [], "devices": ["lo"]}


# ------------------------------------------------------------------------------ refused beforehand
@refused
@pytest.mark.parametrize("workdir", ["/proc/self/fd/7", "/sys", "/dev/shm"])
def test_no_command_starts_in_a_kernel_tree(box: Box, workdir: str) -> None:
    with pytest.raises(ConfigError, match=f"workdir {workdir}"):
        box.run(["true"], workdir=workdir)


def test_a_payload_cannot_turn_the_working_directory_into_a_kernel_tree(box: Box) -> None:
    """CVE-2024-21626 with a link that one call leaves for the next, whose plan is at hand."""
    place = f"{box.workspace}/place"
    sandbox = box.sandbox(workdir=place)
    (box.workspace / "place").mkdir()
    assert sandbox.run(["pwd"]).stdout.decode() == f"{place}\n"
    script = ["sh", "-c", "cd / && rmdir $0 && ln -s /proc/self/fd/7 $0", place]
    assert sandbox.run(script).exit_code == 0
    with pytest.raises(ConfigError, match="which leads to /proc/self"):
        sandbox.run(["pwd"])


HOSTILE = ("run.oci.handler", "dev.gvisor.flag.host-uds", "org.criu.config", "../x", "label.a\nb")


@refused
@pytest.mark.parametrize("key", HOSTILE)
def test_annotations_outside_the_list(box: Box, key: str) -> None:
    with pytest.raises(ConfigError, match="annotation"):
        box.run(["true"], annotations={key: "krun"})


def test_annotations_of_the_list(box: Box) -> None:
    keys = ("label.com.acme.task", "org.opencontainers.image.title", "com.example.x")
    assert box.run(["true"], annotations=dict.fromkeys(keys, "ü 1")).exit_code == 0


# ------------------------------------------------------------------------- allowed, denied commands
DENY: dict[str, Any] = {"commands": {"deny": ["touch", "git push"]}}
DENIED = ["touch", "made"]


@refused
def test_a_denied_command_is_started_in_no_way(box: Box) -> None:
    sandbox = box.sandbox(**DENY)
    for start in (sandbox.run, sandbox.start, lambda argv: asyncio.run(sandbox.arun(argv))):
        with pytest.raises(PolicyDenied, match="deny has 'touch'"):
            start(DENIED)
    with pytest.raises(PolicyDenied, match="allow has only 'ls'"):
        box.run(["true"], commands={"allow": ["ls"]})
    assert box.left() == []
    assert not (box.workspace / "made").exists()
    assert not (box.run_directory / "ocisbx").exists() or not list(box.bundles.glob("*"))
    # No boundary, as the manual says.
    assert sandbox.run(["sh", "-c", "touch made"]).exit_code == 0
    assert (box.workspace / "made").exists()


@refused
def test_a_denied_command_on_the_command_line(box: Box) -> None:
    """Also with a plan that is at hand, and for a bundle that was kept."""
    (box.base / "sandbox.toml").write_text(
        f"workspace = {json.dumps(str(box.workspace))}\n"
        f"[commands]\ndeny = ['touch']\n[runtime]\nnames = [{json.dumps(box.runtime.path)}]\n"
    )

    def cli(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "ocisbx", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    config = ("--config", f"{box.base}/sandbox.toml")
    for _ in range(2):
        assert cli("run", *config, "--", "true").returncode == 0
        done = cli("run", *config, "--", *DENIED)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith("ocisbx: the command 'touch' may not be run: ")
        assert "no boundary" in done.stderr
    kept = f"{box.base}/kept"
    for words in (
        ["run", "--dry-run"],
        ["run", "--keep-bundle", kept],
        ["bundle", "make", "-o", kept],
    ):
        assert cli(*words, *config, "--", *DENIED).returncode == 125
    assert not os.path.exists(kept)
    assert cli("bundle", "make", "-o", kept, *config, "--", "true").returncode == 0
    document = json.loads((box.base / "kept" / "config.json").read_text())
    document["process"]["args"][-1:] = DENIED
    (box.base / "kept" / "config.json").write_text(json.dumps(document))
    done = cli("bundle", "run", kept)
    assert (done.returncode, "may not be run" in done.stderr) == (125, True)
    assert not (box.workspace / "made").exists()


def test_a_policy_denied_is_a_config_error() -> None:
    with pytest.raises(ocisbx.ConfigError):
        ocisbx.run(DENIED, workspace="none", **DENY)
