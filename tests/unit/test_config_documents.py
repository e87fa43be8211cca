"""TOML and JSON in and out, from text and from files."""

import os
from pathlib import Path

import pytest

from ocisbx.config import SandboxConfig
from ocisbx.errors import ConfigError

TOML = """
preset = "balanced"
volumes = ["/opt/go:ro", { source = "/data", target = "/in", read_only = true }]
timeout_s = 2.5

[env]
inherit = ["LANG"]
set = { A = "x\\ny" }

[limits]
memory_bytes = "512M"
rlimits = { nofile = [1024, 4096] }
"""


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.toml"
    path.write_text(TOML)
    config = SandboxConfig.from_toml(path)
    assert config == SandboxConfig.from_toml(TOML)
    assert config.env.set == {"A": "x\ny"}
    document = tmp_path / "sandbox.json"
    document.write_text(config.to_json())
    assert SandboxConfig.from_json(document) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "not valid TOML: Invalid value (at end of document)"),
        ("timeout_s = 1\ntimeout_s = 2", "not valid TOML"),
        ("a = " + "[" * 20_000, "not valid TOML"),
        ("a = " + "[" * 30 + "]" * 30, "a[0][0]: nested too deeply"),
        ("timeout_s = " + "9" * 5000, "not valid TOML"),
        ("timeout_s = nan", "timeout_s: nan is not a duration"),
        ("timeout_s = 1979-05-27", "timeout_s: datetime.date(1979, 5, 27) is not a duration"),
        ('"" = 1', "'': unknown field"),
        ('hostname = "a\\u0000"', "hostname: 'a\\x00' is not a text"),
    ],
    ids=range(9),
)
def test_bad_toml(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SandboxConfig.from_toml(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON: Expecting value"),
        ("[]", "not a JSON object: it is []"),
        ("null", "not a JSON object: it is None"),
        ('{"user": 1, "user": 2}', "'user' is there twice in one JSON object"),
        ('{"env": {"set": {"A": "1", "A": "2"}}}', "'A' is there twice"),
        ("[" * 100_000, "not valid JSON: nested too deeply"),
        ('{"timeout_s": Infinity}', "timeout_s: inf is not a duration"),
        ('{"hostname": "\\ud800"}', "hostname: '\\ud800' is not a text"),
        ('{"\\ud800": 1}', "'\\ud800': '\\ud800' is not a text"),
        ('{"timeout_s": ' + "9" * 5000 + "}", "not valid JSON: Exceeds the limit"),
    ],
    ids=range(10),
)
def test_bad_json(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SandboxConfig.from_json(text)
    assert str(caught.value).startswith(message)


def test_problems_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.toml"
    path.write_text("networks = 1\nuser = 'me'\n")
    with pytest.raises(ConfigError) as caught:
        SandboxConfig.from_toml(path)
    assert str(caught.value).startswith(f"{path}: the configuration has 2 problems:\n  user: ")


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin1.toml").write_bytes(b"hostname = '\xff'")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    cases = {
        tmp_path / "absent.toml": "no such file or directory",
        tmp_path: "is a directory",
        tmp_path / "latin1.toml": "can't decode byte 0xff",
        tmp_path / "large.toml": "is over 1048576 bytes",
        Path("/nul\0"): "null byte",
        Path("/dev/zero"): "is over 1048576 bytes",
    }
    for path, message in cases.items():
        with pytest.raises(ConfigError, match=message):
            SandboxConfig.from_toml(path)


def test_file_from_a_pipe() -> None:
    # As a shell's `--config <(make-config)`.
    reading, writing = os.pipe()
    try:
        os.write(writing, b"timeout_s = 3\n")
        os.close(writing)
        config = SandboxConfig.from_toml(Path(f"/proc/self/fd/{reading}"))
    finally:
        os.close(reading)
    assert config.timeout_s == 3.0
