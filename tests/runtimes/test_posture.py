"""The posture of real containers, on every runtime: /proc's word beside config.json's."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.box import PYTHON
from tests.command_line import ocisbx, said, start
from tests.runtimes.conftest import of_each_name
from tests.runtimes.test_bundle_verbs import edit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.box import Box

# Rows that /proc cannot tell about.
UNSEEN = {"kernel", "timeout", "environment", "filesystem", "landlock"}
LIMITS = {"memory", "swap", "cpus", "pids", "io"}
WAITING = ("sh", "-c", "echo up; exec sleep 60")


@contextmanager
def container(box: Box, *arguments: str | os.PathLike[str]) -> Iterator[Path]:
    """A container called `it` that waits; its bundle."""
    with start(box, *arguments) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "up\n"
        (bundle,) = box.bundles.iterdir()
        try:
            yield bundle
        finally:
            driver.terminate()
            driver.communicate(timeout=30)


def posture(box: Box, what: str | Path, code: int = 0) -> dict[str, Any]:
    done = ocisbx(box, "inspect", "--posture", "--json", what)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["row"] = {row["name"]: row for row in found["rows"]}
    return found


def read(bundle: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((bundle / "config.json").read_text())
    return document


def test_a_container_holds_what_its_config_says(box: Box) -> None:
    options = ("--timeout", "600", "-e", "GREETING=hi", "--tmpfs", "/scratch:size=1m")
    with container(box, "run", "--name", "it", *options, "--", *WAITING):
        found = posture(box, "it")
        text = ocisbx(box, "inspect", "--posture", "it")
    assert found["mismatches"] == []
    assert found["live_pid"] > 1
    rows = found["row"]
    for name, row in rows.items():
        if name not in LIMITS | UNSEEN:
            assert (row["state"], row["source"], row["warning"]) == ("enforced", "live", ""), name
    assert rows["user_namespace"]["holds"] == f"uid 0 inside is uid {os.getuid()} on this machine"
    assert rows["host_writable"]["holds"] == str(box.workspace)
    assert "/scratch (1 MiB)" in rows["scratch"]["holds"]
    assert rows["timeout"]["holds"] == "ended after 600 s"
    assert rows["environment"]["holds"].endswith("GREETING")
    assert text.returncode == 0
    assert "MISMATCH" not in text.stdout
    assert "(the container's process 1)" in text.stdout
    assert max(map(len, text.stdout.splitlines())) < 200


@of_each_name
@pytest.mark.parametrize(
    "options",
    [
        ["--preset", "balanced"],
        ["--preset", "yolo"],
        ["--isolation", "privileged"],
        ["--read-only", "-v", "/usr/share:/opt/share:ro", "--workspace", ":ro"],
        ["--seccomp", "none", "--cap-add", "NET_RAW"],
    ],
    ids=" ".join,
)
def test_no_choice_of_the_caller_is_a_mismatch(box: Box, options: list[str]) -> None:
    done = ocisbx(box, "run", "--posture", *options, "--", "sh", "-c", "echo out; exit 3")
    assert (done.stdout, done.returncode) == ("out\n", 3), done.stderr
    assert "(the container's process 1)" in done.stderr
    assert "MISMATCH" not in done.stderr


@pytest.fixture
def kept(box: Box) -> Path:
    path = box.base / "kept"
    assert ocisbx(box, "bundle", "make", "-o", path, "--", *WAITING).returncode == 0
    return path


def weaken(bundle: Path) -> None:
    """Take layers away by hand, as somebody who edits config.json may."""
    document = read(bundle)
    linux = document["linux"]
    gained = ["CAP_NET_RAW", "CAP_SYS_CHROOT"]
    document["process"]["capabilities"] = dict.fromkeys(
        ("bounding", "effective", "permitted"), gained
    )
    document["process"]["noNewPrivileges"] = False
    document["root"]["readonly"] = False
    del linux["seccomp"]
    linux["namespaces"] = [n for n in linux["namespaces"] if n["type"] not in ("network", "ipc")]
    linux["maskedPaths"].remove("/proc/kallsyms")
    linux["readonlyPaths"].remove("/proc/sys")
    # Landlock needs no_new_privs: with it the init would refuse to start anything.
    args = document["process"]["args"]
    document["process"]["args"] = [args[0], *args[args.index("--") :]]
    for mount in document["mounts"]:
        if mount["destination"] == "/tmp":
            mount["options"] = [option for option in mount["options"] if option != "nosuid"]
        if mount["destination"] == "/usr":
            mount["options"] = ["rbind", "rnosuid", "rnodev", "rprivate", "rw"]
    (bundle / "config.json").write_text(json.dumps(document))


WEAK = {
    "capabilities": ("partial", "NET_RAW, SYS_CHROOT"),
    "no_new_privileges": ("off", "no"),
    "seccomp": ("off", "no filter"),
    "namespaces": ("partial", "this machine's: ipc"),
    "network": ("off", "this machine's network"),
    "read_only_root": ("off", "writable"),
    "mount_flags": ("partial", "/tmp"),
    "masked_paths": ("partial", "/proc/kallsyms"),
    "readonly_paths": ("partial", "/proc/sys"),
    "host_writable": ("partial", "/usr"),
}


def test_a_weakened_bundle_is_named(box: Box, kept: Path) -> None:
    assert posture(box, kept)["mismatches"] == []
    weaken(kept)
    found = posture(box, kept, code=1)
    assert found["live_pid"] is None
    assert found["unseen"] == "no container runs from it"
    told = {text.partition(":")[0] for text in found["mismatches"]}
    assert told == {
        "capabilities", "network", "no_new_privileges", "read_only_root", "seccomp",
    }  # fmt: skip
    assert all("ocisbx declared" in text for text in found["mismatches"])
    with container(box, "bundle", "run", "--name", "it", kept):
        # What runs is what its config.json says: weak, and no lie.
        live = posture(box, "it")
    for rows, source in ((found["row"], "spec"), (live["row"], "live")):
        for name, (state, words) in WEAK.items():
            assert (rows[name]["state"], rows[name]["source"]) == (state, source), name
            assert words in rows[name]["holds"], name
            assert rows[name]["warning"], name
            assert any(line.startswith(f"{name}: ") for line in live["worst"]), name


def test_a_config_that_claims_too_much_is_found_out(box: Box, kept: Path) -> None:
    sound = read(kept)
    weaken(kept)
    with container(box, "bundle", "run", "--name", "it", kept) as bundle:
        claimed = read(bundle)
        for name in ("capabilities", "noNewPrivileges"):
            claimed["process"][name] = sound["process"][name]
        claimed["linux"] = sound["linux"]
        claimed["mounts"] = sound["mounts"]
        claimed["root"]["readonly"] = True
        (bundle / "config.json").write_text(json.dumps(claimed))
        found = posture(box, "it", code=1)
        text = ocisbx(box, "inspect", "--posture", "it")
    assert {text.partition(":")[0] for text in found["mismatches"]} == set(WEAK)
    assert text.returncode == 1
    assert "MISMATCH seccomp: config.json has a filter" in text.stdout.replace("\n           ", " ")


def test_a_run_says_its_posture_and_nothing_else_changes(box: Box) -> None:
    script = ["--", "sh", "-c", "cat; echo err >&2; exit 7"]
    plain = ocisbx(box, "run", "-i", *script, input="in\n")
    shown = ocisbx(box, "run", "--posture", "-i", *script, input="in\n")
    assert (shown.stdout, shown.returncode) == (plain.stdout, plain.returncode) == ("in\n", 7)
    assert shown.stderr.startswith("of         ")
    assert said(shown).endswith("\nerr\n")
    result = ocisbx(box, "run", "--posture", "--json", "--", "echo", "out")
    assert json.loads(result.stdout)["stdout"] == "out\n"
    assert "NAME " in result.stderr
    dry = ocisbx(box, "run", "--posture", "--dry-run", "--", "true")
    assert json.loads(dry.stdout)["process"]["args"][-1] == "true"
    assert "nothing was started" in dry.stderr


def test_a_payload_that_was_never_found_is_told_as_ever(box: Box) -> None:
    done = ocisbx(box, "run", "--posture", "no-such-program")
    assert done.returncode == 127
    assert "NAME " in done.stderr


def test_the_prompt_is_that_of_the_container(box: Box, kept: Path) -> None:
    with container(box, "run", "--name", "it", "-e", "TOKEN=hunter2", "--", *WAITING):
        live = ocisbx(box, "inspect", "--prompt", "it").stdout
        document = json.loads(ocisbx(box, "inspect", "--prompt", "--json", "it").stdout)
    assert document == {"prompt": live}
    assert ocisbx(box, "inspect", "--prompt", kept).stdout == live
    assert f"what you write stays: {box.workspace}." in live
    assert "No network" in live
    for hidden in ("hunter2", "TOKEN", str(os.getuid()), "memory", box.runtime.path):
        assert hidden not in live
    weaken(kept)
    weak = ocisbx(box, "inspect", "--prompt", kept).stdout
    assert "No network" not in weak
    assert "NET_RAW, SYS_CHROOT" in weak
    assert "EPERM (" not in weak


def test_the_prompt_from_python(box: Box) -> None:
    text = box.sandbox(timeout_s=30, network="none").prompt()
    assert "ended after 30 s" in text
    assert "No network" in text
    assert "that of the machine" in box.sandbox(network="host").prompt()


def test_bundles_that_are_not_ours_or_not_sound(box: Box, kept: Path) -> None:
    (kept / "owner.json").unlink()
    found = posture(box, kept)
    assert found["owner"] is None
    assert found["row"]["seccomp"]["state"] == "enforced"
    assert "timeout" not in found["row"]
    edit(kept, "process", "cwd", value=7)
    for option in ("--posture", "--prompt"):
        done = ocisbx(box, "inspect", option, kept)
        assert done.returncode == 125
        assert "is not a valid bundle: $.process.cwd" in done.stderr
    both = ocisbx(box, "inspect", "--posture", "--prompt", kept)
    assert both.returncode == 125
    assert "two answers" in both.stderr


def test_a_policy_that_was_rewritten_is_refused(box: Box, kept: Path) -> None:
    owner = json.loads((kept / "owner.json").read_text())
    policies: list[dict[str, Any]] = [{}, {"enforcement": {"seccomp": 1}}, {"enforcement": []}]
    for policy in policies:
        (kept / "owner.json").write_text(json.dumps(owner | {"policy": policy}))
        done = ocisbx(box, "inspect", "--posture", kept)
        assert done.returncode == 125
        assert "owner.json" in done.stderr
        assert "remedy: make the bundle anew" in done.stderr


RECEIVE = """\
import socket, time
with socket.socket(socket.AF_UNIX) as caller:
    caller.connect("door")
    kept = socket.recv_fds(caller, 1, 1)
print("up", flush=True)
time.sleep(60)
"""


def test_an_open_file_of_the_host_is_found(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reached the payload some other way than through its mounts: it was sent."""
    monkeypatch.chdir(box.workspace)
    descriptor = os.open("/etc", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        door.listen()
        giver = threading.Thread(target=give, args=(door, descriptor))
        giver.start()
        with container(box, "run", "--name", "it", "--", PYTHON, "-c", RECEIVE):
            found = posture(box, "it")["row"]["descriptors"]
        giver.join()
    os.close(descriptor)
    assert (found["state"], found["source"]) == ("off", "live")
    assert found["holds"].endswith(" -> /etc")
    assert "whatever its mounts say" in found["warning"]


def give(door: socket.socket, descriptor: int) -> None:
    connection, _ = door.accept()
    with connection:
        socket.send_fds(connection, [b"x"], [descriptor])
