"""Where things are kept: which directories root's containers could reach."""

from pathlib import Path

import pytest

from ocisbx import places


def test_a_private_directory_on_the_way_cannot_be_crossed(tmp_path: Path) -> None:
    private = tmp_path / "private"
    inner = private / "inner"
    inner.mkdir(parents=True)
    private.chmod(0o700)
    assert places._crossable("/usr/bin")
    assert not places._crossable(str(private))
    assert not places._crossable(str(inner))


@pytest.mark.parametrize("value", ["", "relative", "/nonexistent/directory"])
def test_a_runtime_directory_that_is_none_is_left_alone(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert places.find_places().runtime.startswith("/tmp/ocisbx-")
