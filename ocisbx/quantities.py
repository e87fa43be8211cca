"""Numbers that a caller writes: sizes, durations, processors, rates, rlimits, signals.

All raise ConfigError, whose sentence tells what was expected.
"""

from __future__ import annotations

import math
import re
import signal
from typing import TYPE_CHECKING

from ocisbx.errors import ConfigError
from ocisbx.values import check_text, did_you_mean, refusal, show

if TYPE_CHECKING:
    from collections.abc import Iterable

# The runtime-spec's own word for "no limit" (memory.limit, memory.swap, pids.limit).
UNLIMITED = -1
UNLIMITED_WORDS = ("unlimited", "-1")
# Below it no runtime can start anything; nearly always a forgotten unit (`512` for `512M`).
MIN_MEMORY_BYTES = 1 << 20
MAX_BYTES = (1 << 63) - 1
# include/linux/page_counter.h: LONG_MAX is "max", in pages of up to 64 KiB.
MAX_MEMORY_BYTES = MAX_BYTES - (1 << 17)
# CONFIG_NR_CPUS is 8192 at most.
MAX_CPU = 8191
# block/blk-throttle.c: operations are counted in an unsigned int.
MAX_IOPS = (1 << 32) - 1
# cgroup-v2.rst: cpu.weight and io.weight.
MAX_WEIGHT = 10_000
# Longer than any run; keeps every sum of times far from the limits of poll(2) and time_t.
MAX_SECONDS = 1e9
# Compiled at first use (re keeps them), which halves the time that this module takes to import.
_SIZE = r"([0-9]{1,20})(\.[0-9]{1,9})? ?(?:([kKmMgGtT])[iI]?)?[bB]?"
_CPU_RANGE = r"([0-9]{1,4})(?:-([0-9]{1,4}))?"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# docker's manual writes --cpus=".5".
_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,20})?|\.[0-9]{1,20}"
_SIZE_EXAMPLES = "expected bytes or a size such as 512M, 2g, 64k, 1.5GiB (powers of 1024)"
# getrlimit(2), the names that the runtime-spec allows on Linux; True: counted in bytes.
RLIMITS: dict[str, bool] = {
    "RLIMIT_AS": True,
    "RLIMIT_CORE": True,
    "RLIMIT_CPU": False,
    "RLIMIT_DATA": True,
    "RLIMIT_FSIZE": True,
    "RLIMIT_LOCKS": False,
    "RLIMIT_MEMLOCK": True,
    "RLIMIT_MSGQUEUE": True,
    "RLIMIT_NICE": False,
    "RLIMIT_NOFILE": False,
    "RLIMIT_NPROC": False,
    "RLIMIT_RSS": True,
    "RLIMIT_RTPRIO": False,
    "RLIMIT_RTTIME": False,
    "RLIMIT_SIGPENDING": False,
    "RLIMIT_STACK": True,
}


def parse_size(value: object, *, minimum: int = 0) -> int:
    """Bytes from an integer or "512M", "2g", "64k", "1.5GiB": powers of 1024, as docker."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        text = check_text(value, "a size").strip(" ")
        match = re.fullmatch(_SIZE, text)
        if match is None or (match[2] and not match[3]):
            raise refusal(value, "a size", _SIZE_EXAMPLES)
        unit = _UNITS[(match[3] or "").lower()]
        digits = (match[2] or ".").removeprefix(".")
        size = int(match[1]) * unit + int(digits or "0") * unit // 10 ** len(digits)
    if size < 0:
        raise refusal(value, "a size", f"it is negative; {_SIZE_EXAMPLES}")
    if size < minimum:
        raise refusal(value, "a size that can work", f"at least {minimum} bytes; {_SIZE_EXAMPLES}")
    if size > MAX_BYTES:
        raise refusal(value, "a size", "it is over 8 EiB")
    return size


def parse_size_limit(value: object, *, minimum: int = 0) -> int:
    """As parse_size, and "unlimited" or -1 gives UNLIMITED."""
    return UNLIMITED if _is_unlimited(value) else parse_size(value, minimum=minimum)


def parse_memory(value: object) -> int:
    """A memory limit in bytes, at least 1 MiB, or UNLIMITED."""
    return _bounded(value, MIN_MEMORY_BYTES)


def parse_swap(value: object) -> int:
    """Memory and swap together, in bytes, or UNLIMITED."""
    return _bounded(value, 0)


def _bounded(value: object, minimum: int) -> int:
    size = parse_size_limit(value, minimum=minimum)
    if size > MAX_MEMORY_BYTES:
        why = "the kernel takes so much for no limit"
        raise refusal(value, "a limit of memory", why, remedy="-1 is no limit")
    return size


def parse_integer(value: object, noun: str, minimum: int, maximum: int) -> int:
    """An integer within bounds, from an int or from decimal digits."""
    number: object = value
    if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise refusal(value, noun, f"expected an integer from {minimum} to {maximum}")
    if not minimum <= number <= maximum:
        raise refusal(value, noun, f"expected {minimum} to {maximum}")
    return number


def parse_pids(value: object) -> int:
    """A number of processes and threads, at least 1, or UNLIMITED."""
    if _is_unlimited(value):
        return UNLIMITED
    # pids.max of the kernel: PID_MAX_LIMIT on 64 bit.
    return parse_integer(value, "a limit of processes", 1, 1 << 22)


def parse_sandboxes(value: object) -> int:
    """A number of sandboxes, at least 1, or UNLIMITED."""
    if _is_unlimited(value):
        return UNLIMITED
    # Each has processes of its own, so no host runs more than pids.
    return parse_integer(value, "a number of sandboxes", 1, 1 << 22)


def parse_cpus(value: object) -> float:
    """A number of CPUs such as 0.5 or 2, or UNLIMITED; 0.01 is the kernel's smallest quota."""
    if _is_unlimited(value):
        return float(UNLIMITED)
    expected = "expected a number of CPUs such as 0.5 or 2, from 0.01 on"
    return _parse_number(value, "a number of CPUs", expected, 0.01, 100_000)


def parse_weight(value: object) -> int:
    """cpu.weight and io.weight of cgroup v2, 1 to 10000."""
    return parse_integer(value, "a weight", 1, MAX_WEIGHT)


def parse_cpuset(value: object) -> str:
    """Processors as docker's --cpuset-cpus, `0-3,6`, in the kernel's own spelling (cpuset(7))."""
    text = check_text(value, "a list of processors")
    expected = "expected numbers and ranges, such as 0-3,6"
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(_CPU_RANGE, part)
        if match is None:
            raise refusal(value, "a list of processors", expected)
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last <= MAX_CPU:
            why = "a range goes up" if last < first else f"the last one there can be is {MAX_CPU}"
            raise refusal(value, "a list of processors", f"{why}; {expected}")
        numbers.update(range(first, last + 1))
    return show_cpuset(numbers)


def expand_cpuset(text: str) -> frozenset[int]:
    """The numbers of a list in the kernel's spelling; none of an empty one."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return frozenset(
        number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)
    )


def show_cpuset(numbers: Iterable[int]) -> str:
    """Numbers as `0-3,6`."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def parse_iops(value: object) -> int:
    """Operations a second, at least 1."""
    return parse_integer(value, "a number of operations a second", 1, MAX_IOPS)


def parse_device_limit(value: object) -> tuple[str, str]:
    """docker's --device-read-bps and its like, `DEVICE:LIMIT`: (device, limit), both as typed."""
    text = check_text(value, "a limit of a device")
    device, colon, limit = text.rpartition(":")
    # Of 8:0 alone the last number is the minor.
    if not colon or not limit or not re.fullmatch(r"/.*|[0-9]+:[0-9]+", device, re.DOTALL):
        why = "expected DEVICE:LIMIT, such as /dev/sda:10M, 8:0:10M or /srv:10M"
        raise refusal(text, "a limit of a device", why)
    return device, limit


def parse_seconds(value: object, *, zero: bool = False) -> float:
    """A finite duration in seconds above zero (`zero`: or zero itself), from a number or digits."""
    least = 0.0 if zero else math.ulp(0.0)
    expected = f"expected seconds {'from 0' if zero else 'above 0'} to {MAX_SECONDS:.0f}"
    return _parse_number(value, "a duration", expected, least, MAX_SECONDS)


def _parse_number(value: object, noun: str, expected: str, least: float, most: float) -> float:
    number: object = value
    if isinstance(value, str) and re.fullmatch(_NUMBER, value):
        number = float(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise refusal(value, noun, expected)
    # Compared before it is converted: float() of a huge integer overflows. NaN fails both.
    if not least <= number <= most:
        raise refusal(value, noun, expected)
    return float(number)


def _is_unlimited(value: object) -> bool:
    if isinstance(value, str):
        return value in UNLIMITED_WORDS
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == UNLIMITED


def check_rlimit_name(value: object) -> str:
    """A resource of getrlimit(2) in the spec's spelling: `nofile` gives `RLIMIT_NOFILE`."""
    text = check_text(value, "a resource")
    name = text.upper()
    name = name if name.startswith("RLIMIT_") else f"RLIMIT_{name}"
    if name not in RLIMITS:
        known = [resource.removeprefix("RLIMIT_").lower() for resource in RLIMITS]
        hint = did_you_mean(text.lower(), known)
        raise refusal(text, "a resource", f"expected one of {', '.join(known)}{hint}")
    return name


def parse_rlimit(name: str, soft: object, hard: object | None = None) -> tuple[int, int]:
    """(soft, hard) of RLIMIT `name`, UNLIMITED for RLIM_INFINITY; `hard` None: as soft.

    Raises ConfigError: not a number (of bytes: not a size), or soft above hard.
    """
    low, high = (_parse_rlimit_end(name, end) for end in (soft, soft if hard is None else hard))
    if high != UNLIMITED and (low == UNLIMITED or low > high):
        why = f"the soft limit {show(soft)} is above the hard one {show(hard)}"
        raise ConfigError(f"{name} cannot be set", why=why)
    return low, high


def _parse_rlimit_end(name: str, value: object) -> int:
    if RLIMITS[name]:
        return parse_size_limit(value)
    return UNLIMITED if _is_unlimited(value) else parse_integer(value, f"an {name}", 0, MAX_BYTES)


def parse_ulimit(value: object) -> tuple[str, tuple[int, int]]:
    """docker's --ulimit, `NAME=SOFT[:HARD]`: (RLIMIT_NAME, (soft, hard))."""
    text = check_text(value, "a ulimit")
    name, equals, limits = text.partition("=")
    soft, colon, hard = limits.partition(":")
    if not equals or not soft or (colon and not hard):
        why = "expected NAME=SOFT or NAME=SOFT:HARD, such as nofile=1024:4096"
        raise refusal(text, "a ulimit", why)
    resource = check_rlimit_name(name)
    return resource, parse_rlimit(resource, soft, hard if colon else None)


def parse_signal(value: object) -> int:
    """TERM, SIGTERM, term or 15."""
    name = str(value).upper().removeprefix("SIG")
    for number in signal.valid_signals():
        # Real-time signals between the first and the last have none.
        known: str = getattr(number, "name", "")
        if name and name in (str(int(number)), known.removeprefix("SIG")):
            return int(number)
    raise ConfigError(f"{show(value)} is not a signal", remedy="kill -l lists them")
