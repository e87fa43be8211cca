"""--volume, --mount, --tmpfs, --workspace."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx import mounts
from ocisbx.errors import ConfigError

HOSTILE = st.text(st.characters(exclude_categories=())) | st.text("/:,=\"'ro wsizetmpfbnd\n\0")
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50).map(
    lambda text: f"/{text}"
)
PARSERS = (mounts.parse_volume, mounts.parse_tmpfs, mounts.parse_workspace, mounts.parse_mount)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
@given(value=HOSTILE | st.none() | st.integers())
def test_only_config_error_comes_out(parser: Any, value: object) -> None:
    message = ""
    try:
        parser(value)
    except ConfigError as error:
        message = str(error)
    assert message.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/opt/go", ("/opt/go", "/opt/go", False)),
        ("/opt/go:ro", ("/opt/go", "/opt/go", True)),
        ("/opt/go:rw", ("/opt/go", "/opt/go", False)),
        ("/a:/b", ("/a", "/b", False)),
        ("/a:/b:ro", ("/a", "/b", True)),
        ("/a b:/c\nd:ro", ("/a b", "/c\nd", True)),
        ("/ro:ro", ("/ro", "/ro", True)),
    ],
)
def test_volume(text: str, expected: tuple[str, str, bool]) -> None:
    assert mounts.parse_volume(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "ro",
        "a:/b",
        "/a:b",
        "/a:/b:/c",
        "/a:/b:z",
        "/a:/b:ro:ro",
        "/a:",
        ":/b",
        "/a\0",
        "~/a",
    ],
)
def test_volume_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        mounts.parse_volume(text)


def test_volume_with_colons_leads_to_mount() -> None:
    with pytest.raises(ConfigError) as caught:
        mounts.parse_volume("/a:b:/c")
    assert "--mount type=bind,src=" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/scratch", ("/scratch", None)),
        ("/scratch:size=64M", ("/scratch", 64 << 20)),
        ("/a:b/c", ("/a:b/c", None)),
    ],
)
def test_tmpfs(text: str, expected: tuple[str, int | None]) -> None:
    assert mounts.parse_tmpfs(text) == expected


# size=0 means unlimited to the kernel (tmpfs(5)).
@pytest.mark.parametrize(
    "text", ["", "a", "/a:", "/a:rw", "/a:size=", "/a:size=0", "/a:size=x", "/a:mode=1777"]
)
def test_tmpfs_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        mounts.parse_tmpfs(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/w", ("/w", None)),
        ("/w:ro", ("/w", True)),
        ("/w:rw", ("/w", False)),
        (":ro", (None, True)),
        ("/a:b c\nd", ("/a:b c\nd", None)),
        ("/a:ro:rw", ("/a:ro", False)),
        (Path("/w"), ("/w", None)),
        ("per-call", (None, None, True)),
        ("per-call:ro", (None, True, True)),
        ("per-call:rw", (None, False, True)),
        ("/per-call", ("/per-call", None)),
    ],
)
def test_workspace(value: object, expected: tuple[Any, ...]) -> None:
    assert mounts.parse_workspace(value) == mounts.WorkspaceValue(*expected)
    late = len(expected) == 3
    assert mounts.is_per_call(str(value)) == late
    wanted = None if late else mounts.WorkspaceValue(*expected)
    assert mounts.directory_wanted(str(value)) == wanted


def test_a_workspace_that_is_not_said() -> None:
    """Is the current directory."""
    assert mounts.directory_wanted(None) == mounts.WorkspaceValue(None, read_only=False)
    assert not mounts.is_per_call(None)


def test_no_workspace() -> None:
    assert mounts.parse_workspace("none") is None
    assert mounts.directory_wanted("none") is None
    assert not mounts.is_per_call("none")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "w",
        ".",
        "./w:ro",
        "none:ro",
        "~",
        "/w\0",
        "/\udcff",
        Path("none"),
        Path("/w:ro"),
        Path("per-call"),
        "per-call:",
        "per-call:ro:ro",
        "per-call:/w",
    ],
)
def test_workspace_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        mounts.parse_workspace(value)


@given(path=PATHS, read_only=st.booleans())
def test_every_path_can_be_a_workspace(path: str, *, read_only: bool) -> None:
    text = f"{path}:{'ro' if read_only else 'rw'}"
    assert mounts.parse_workspace(text) == mounts.WorkspaceValue(path, read_only)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type=bind,src=/a,dst=/b", ("/a", "/b", False)),
        ("type=bind,source=/a,target=/b,readonly", ("/a", "/b", True)),
        ("src=/a:x,destination=/b,ro=true", ("/a:x", "/b", True)),
        ("type=bind,src=/a,dst=/b,ro=0", ("/a", "/b", False)),
        ('type=bind,"src=/a,b","dst=/c""d",ro', ("/a,b", '/c"d', True)),
        ('type=bind,"src=/a\nb",dst=/c', ("/a\nb", "/c", False)),
        ("type=tmpfs,dst=/t", ("/t", None)),
        ("type=tmpfs,dst=/t,size=1m", ("/t", 1 << 20)),
        ("type=tmpfs,dst=/t,tmpfs-size=512", ("/t", 512)),
    ],
)
def test_mount(text: str, expected: tuple[object, ...]) -> None:
    assert mounts.parse_mount(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected type=bind"),
        ("type=bind", "dst is missing"),
        ("type=bind,dst=/b", "src is missing"),
        ("type=bind,src=,dst=/b", "has no value"),
        ("type=bind,src=a,dst=/b", "relative"),
        ("type=bind,src=/a,dst=/b,src=/c", "there twice"),
        ("type=bind,src=/a,dst=/b,source=/c", "there twice"),
        ("type=bind,src=/a,dst=/b,size=3", "does not belong to type bind"),
        ("type=tmpfs,src=/a,dst=/b", "does not belong to type tmpfs"),
        ("type=tmpfs,dst=/b,size=0", "size"),
        ("type=volume,src=/a,dst=/b", "type 'volume' is not known"),
        ("type=bind,src=/a,dst=/b,ro=maybe", "true or false"),
        ("type=bind,src=/a,dst=/b,raedonly", "did you mean 'readonly'"),
        ('type=bind,"src=/a', "expected type=bind"),
        ("type=bind,src=/a,dst=/b\ntype=bind", "expected type=bind"),
    ],
)
def test_mount_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mounts.parse_mount(text)


@given(source=PATHS, target=PATHS, read_only=st.booleans())
def test_every_path_can_be_mounted(source: str, target: str, *, read_only: bool) -> None:
    fields = [f"src={source}", f"dst={target}", f"ro={str(read_only).lower()}"]
    text = ",".join('"' + field.replace('"', '""') + '"' for field in ["type=bind", *fields])
    assert mounts.parse_mount(text) == (source, target, read_only)
