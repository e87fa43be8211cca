"""What `/.ocisbx/init --self-test` prints, run as a payload: `NAME VALUE` lines; ocisbx-init(7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ocisbx.errors import RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

ARGV: Final = ("/.ocisbx/init", "--self-test")
"""The payload."""

_SHOWN_CHARACTERS: Final = 100


class SelfTest(NamedTuple):
    """The kernel's word on one payload, and its answers to calls that none may make.

    The first eight are lines of proc_pid_status(5), None where the kernel has no such line;
    capability sets are the bits of capabilities(7). `landlock` is the ABI that the payload can
    use, 0: none. The others are errno numbers, 0 where the call was let through.
    """

    no_new_privs: bool | None
    seccomp: int | None
    cap_inh: int | None
    cap_prm: int | None
    cap_eff: int | None
    cap_bnd: int | None
    cap_amb: int | None
    groups: tuple[int, ...] | None
    landlock: int
    clone: int
    clone3: int
    openat: int
    keyctl: int
    mount: int
    personality: int
    unshare: int


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"{text!r} is neither 0 nor 1")
    return text == "1"


def _bits(text: str) -> int:
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{text!r} is not a set of capabilities")
    return int(text, 16)


def _groups(text: str) -> tuple[int, ...]:
    return tuple(_number(word) for word in text.split())


# Line: field of SelfTest, and how its value is read. Those of /proc may be missing.
_STATUS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "NoNewPrivs": ("no_new_privs", _flag),
    "Seccomp": ("seccomp", _number),
    "CapInh": ("cap_inh", _bits),
    "CapPrm": ("cap_prm", _bits),
    "CapEff": ("cap_eff", _bits),
    "CapBnd": ("cap_bnd", _bits),
    "CapAmb": ("cap_amb", _bits),
    "Groups": ("groups", _groups),
}
_ANSWERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    name: (name, _number)
    for name in (
        "landlock",
        "clone",
        "clone3",
        "openat",
        "keyctl",
        "mount",
        "personality",
        "unshare",
    )
}
_LINES: Final = _STATUS | _ANSWERS


def parse_self_test(output: bytes) -> SelfTest:
    """Read what the self-test printed.

    Raises:
        RuntimeFailed: it is anything but a whole self-test.
    """
    # Where the kernel has no such line.
    values: dict[str, Any] = dict.fromkeys(field for field, _ in _STATUS.values())
    missing = set(_LINES)
    try:
        for line in output.decode("ascii").removesuffix("\n").split("\n"):
            name, _, text = line.partition(" ")
            if name not in missing:
                raise ValueError(f"{line[:_SHOWN_CHARACTERS]!r} was not expected")
            missing.remove(name)
            field, read = _LINES[name]
            values[field] = read(text)
        if absent := sorted(missing & set(_ANSWERS)):
            raise ValueError(f"no line {absent[0]}")
    except ValueError as error:
        raise RuntimeFailed(
            "the self-test inside the container did not end as it should",
            why=str(error)[: 2 * _SHOWN_CHARACTERS],
            remedy=f"see it with: ocisbx run -- {' '.join(ARGV)}",
        ) from error
    return SelfTest(**values)
