"""Values of limits: what docker takes is taken, and what the kernel would take for none is not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocisbx import quantities
from ocisbx.config import Limits
from ocisbx.errors import ConfigError
from tests.unit.test_values import HOSTILE, refusal

PARSERS = (
    quantities.parse_cpuset,
    quantities.parse_weight,
    quantities.parse_iops,
    quantities.parse_swap,
    quantities.parse_device_limit,
)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
@given(value=HOSTILE | st.text("0123456789-,: /", max_size=12))
def test_only_config_error_comes_out(parser: Any, value: object) -> None:
    message = refusal(parser, value)
    assert message.isprintable()
    assert len(message) < 500


def made(fields: dict[str, Any]) -> Limits:
    return Limits(**fields)


CPUSETS = st.sets(st.integers(0, quantities.MAX_CPU), min_size=1, max_size=40)


@given(CPUSETS)
def test_cpusets_round_trip(numbers: set[int]) -> None:
    shown = quantities.show_cpuset(numbers)
    assert quantities.expand_cpuset(shown) == numbers
    assert quantities.parse_cpuset(shown) == shown
    listed = ",".join(map(str, numbers))
    assert quantities.parse_cpuset(listed) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0", "0"), ("0-3,6", "0-3,6"), ("6,0-2,3", "0-3,6"), ("1,1,1-1", "1"), ("007", "7")],
)
def test_cpusets(text: str, shown: str) -> None:
    assert quantities.parse_cpuset(text) == shown


@pytest.mark.parametrize(
    "text",
    ["", ",", "0,", "-1", "1-", "3-1", "0--3", "a", "0-3:2/4", "all", " 0", "0 1", "8192", "\u0661",
     "0\n", 0, None, True, ["0"]],
)  # fmt: skip
def test_cpusets_refused(text: object) -> None:
    with pytest.raises(ConfigError, match=r"(processors|a text)"):
        quantities.parse_cpuset(text)


# What limits refuse, field by field: nothing here may reach the kernel as "no limit".
NOTHING: tuple[Any, ...] = (
    0,
    "0",
    -2,
    "-2",
    0.0,
    -0.5,
    math.nan,
    math.inf,
    "nan",
    "inf",
    "",
    True,
    None,
    [],
    {},
)
FIELDS = ("memory_bytes", "memory_high_bytes", "cpus", "cpu_weight", "cpuset", "pids")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", NOTHING, ids=repr)
def test_what_limits_nothing_is_refused(field: str, value: object) -> None:
    if value is None or (field, value) == ("cpuset", "0"):
        return
    with pytest.raises(ConfigError, match=field):
        made({field: value})


@pytest.mark.parametrize("field", ["read_bps", "write_bps", "read_iops", "write_iops", "weight"])
@pytest.mark.parametrize("value", NOTHING, ids=repr)
def test_what_limits_no_disk_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=r"limits nothing" if value is None else field):
        made({"io": {"8:0": {field: value}}})


ABSURD = [
    ("memory_bytes", "8191P"), ("memory_bytes", (1 << 63) - 1), ("memory_bytes", "8388608t"),
    ("memory_bytes", "512MM"), ("memory_bytes", "512 mega"), ("memory_bytes", "1e9"),
    ("memory_bytes", "half"), ("memory_bytes", 512), ("memory_bytes", "1.5"),
    ("memory_high_bytes", (1 << 63) - 1), ("swap_bytes", (1 << 63) - 1),
    ("cpus", "1/2"), ("cpus", "0.009"), ("cpus", 1e6), ("cpus", "50%"), ("cpus", 10**400),
    ("cpu_weight", 10_001), ("cpu_weight", "1.5"), ("cpu_weight", "heavy"),
    ("pids", (1 << 22) + 1), ("pids", "64k"), ("pids", 1.5),
    ("cpuset", "0-9999"), ("io", {"8:0": {"read_iops": "1k"}}), ("io", {"8:0": {}}),
    ("io", {"8:0": {"read_iops": 1 << 32}}), ("io", {"sda": {"read_bps": 1}}),
    ("io", {"8": {"read_bps": 1}}), ("io", {"8:0:1": {"read_bps": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), ABSURD, ids=lambda part: str(part)[:30])
def test_what_is_absurd_is_refused(field: str, value: object) -> None:
    changes = {"memory_bytes": 1 << 30} if field == "swap_bytes" else {}
    with pytest.raises(ConfigError, match=field):
        made({**changes, field: value})


# From docker's manual.
AS_DOCKER = [
    ("memory_bytes", "300M", 300 << 20), ("memory_bytes", "300mb", 300 << 20),
    ("memory_bytes", "1.5g", 3 << 29), ("memory_bytes", "2097152", 2 << 20),
    ("memory_bytes", "2097152b", 2 << 20), ("cpus", ".5", 0.5), ("cpus", "1.5", 1.5),
    ("cpuset", "1,3", "1,3"), ("cpuset", "0-2", "0-2"), ("pids", "-1", -1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "text", "value"), AS_DOCKER)
def test_what_docker_takes_is_taken(field: str, text: str, value: object) -> None:
    assert getattr(made({field: text}), field) == value


DEVICES = [
    ("/dev/sda:1mb", ("/dev/sda", "1mb")), ("8:0:1048576", ("8:0", "1048576")),
    ("/srv:10", ("/srv", "10")), ("/a:b:5", ("/a:b", "5")), ("/a b\n:5", ("/a b\n", "5")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), DEVICES)
def test_device_limits(text: str, parts: tuple[str, str]) -> None:
    assert quantities.parse_device_limit(text) == parts


@pytest.mark.parametrize("text", ["", ":", "/dev/sda", "/dev/sda:", "8:0", "sda:1", "8:x:1", ":1"])
def test_device_limits_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected DEVICE:LIMIT"):
        quantities.parse_device_limit(text)
