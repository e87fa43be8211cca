"""`bundle check` and `bundle diff` on documents: every rule is broken once, by name."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx.bundle.check import check_bundle
from ocisbx.bundle.diff import ABSENT, differences
from ocisbx.bundle.view import payload_argv
from ocisbx.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "hostname": "sandbox",
    "root": {"path": "rootfs", "readonly": True},
    "process": {
        "cwd": "/",
        "args": ["/.ocisbx/init", "--", "true"],
        "env": ["PATH=/bin", "EMPTY="],
        "user": {"uid": 0, "gid": 0},
        "rlimits": [{"type": "RLIMIT_CORE", "soft": 0, "hard": 0}],
    },
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/data", "type": "bind", "source": "data", "options": ["rbind"]},
    ],
    "linux": {
        "namespaces": [{"type": "user"}, {"type": "mount"}, {"type": "uts"}],
        "uidMappings": [{"containerID": 0, "hostID": 1000, "size": 1}],
        "gidMappings": [{"containerID": 0, "hostID": 1000, "size": 1}],
        "maskedPaths": ["/proc/kcore"],
    },
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "rootfs" / ".ocisbx").mkdir(parents=True)
    (tmp_path / "rootfs" / ".ocisbx" / "init").touch(0o755)
    (tmp_path / "data").mkdir()
    return tmp_path


def check(bundle: Path, document: object) -> list[str]:
    (bundle / "config.json").write_text(json.dumps(document))
    return [str(violation) for violation in check_bundle(str(bundle))]


def test_a_good_bundle(bundle: Path) -> None:
    assert check(bundle, GOOD) == []


COMMAND = st.lists(st.text(max_size=3) | st.sampled_from(["-w", "--", "/tmp"]), min_size=1)
RULES = st.lists(st.text(max_size=9).map(lambda rest: f"/{rest}"), max_size=3)


@given(RULES, COMMAND)
def test_the_command_stands_behind_the_words_of_the_init(
    paths: list[str], command: list[str]
) -> None:
    rules = [word for path in paths for word in ("-w", path)]
    assert payload_argv(["/.ocisbx/init", *rules, "--", *command]) == command
    assert payload_argv(["/bin/init", *rules, "--", *command]) == []


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    *parents, last = path.split(".")

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for name in parents:
            place = place[int(name)] if name.isdigit() else place[name]
        place[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (put("ociVersion", 3), "$.ociVersion must be"),
        (put("process.cwd", "here"), "$.process.cwd must be an absolute path"),
        (put("process.args", []), "$.process.args must"),
        (put("process.env.0", "PATH"), "$.process.env[0] must have the form NAME=value"),
        (put("process.env.0", "=x"), "$.process.env[0] must have the form NAME=value"),
        (put("process.user.uid", 7), "$.process.user.uid 7 is not mapped by linux.uidMappings"),
        *(
            (
                put("process.args", ["/.ocisbx/init", *words]),
                "$.process.args must be /.ocisbx/init, ",
            )
            for words in (
                ["true"],
                ["--"],
                ["-w", "/tmp", "--"],
                ["-w", "/tmp", "true"],
                ["-w", "tmp", "--", "true"],
                ["-w", "--", "true"],
                ["-w"],
            )
        ),
        (put("process", None), "$.process"),
        (put("root.path", "gone"), "$.root.path 'gone' must be a directory that exists"),
        (put("mounts.1.destination", "data"), "$.mounts[1].destination must be an absolute path"),
        (put("mounts.1.source", "gone"), "$.mounts[1].source 'gone' does not exist"),
        (
            put("linux.gidMappings", []),
            "$.linux uidMappings and gidMappings must be given together",
        ),
        (put("linux.namespaces", [{"type": "uts"}]), "$.linux.namespaces id mappings need a user"),
        (
            put("linux.namespaces.2.type", "mount"),
            "$.linux.namespaces[2].type mount is there twice",
        ),
        (put("linux.maskedPaths.0", "kcore"), "$.linux.maskedPaths[0] must be an absolute path"),
    ],
)
def test_every_rule(bundle: Path, change: Callable[[dict[str, Any]], None], violation: str) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    found = check(bundle, document)
    assert found
    assert any(line.startswith(violation) for line in found), found


def test_duplicate_rlimits(bundle: Path) -> None:
    document = copy.deepcopy(GOOD)
    document["process"]["rlimits"] *= 2
    assert check(bundle, document) == ["$.process.rlimits[1].type RLIMIT_CORE is there twice"]


def test_a_host_name_needs_a_namespace(bundle: Path) -> None:
    document = copy.deepcopy(GOOD)
    del document["linux"]["namespaces"][2]
    assert check(bundle, document) == ["$.hostname needs a uts namespace of the container's own"]


def test_the_init_has_to_be_there(bundle: Path) -> None:
    (bundle / "rootfs/.ocisbx/init").chmod(0o644)
    assert check(bundle, GOOD) == [
        "$.process.args[0] /.ocisbx/init is not there, or cannot be executed"
    ]


def test_what_is_no_bundle(tmp_path: Path) -> None:
    assert str(check_bundle(str(tmp_path))[0]).startswith("$ is missing")
    (tmp_path / "config.json").write_text("{")
    assert str(check_bundle(str(tmp_path))[0]).startswith("$ must be JSON")
    with pytest.raises(BundleError, match="is not a directory"):
        check_bundle(str(tmp_path / "config.json"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(JSON)
def test_a_document_does_not_differ_from_itself(document: object) -> None:
    assert differences(document, json.loads(json.dumps(document))) == []


@given(JSON, JSON)
def test_documents_that_differ_have_a_difference(left: object, right: object) -> None:
    assert bool(differences(left, right)) == (json.dumps(left) != json.dumps(right)) or (
        # Objects have no order.
        left == right
    )


def test_differences_are_named_by_path() -> None:
    left = {"a": [1, {"b": True}], "c": "x", "same": None}
    right = {"a": [1, {"b": 1}, 3], "d e": "x", "same": None}
    assert differences(left, right) == [
        ("$.a[1].b", True, 1),
        ("$.a[2]", ABSENT, 3),
        ("$.c", "x", ABSENT),
        ('$["d e"]', ABSENT, "x"),
    ]
