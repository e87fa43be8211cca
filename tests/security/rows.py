"""What an assertion is, and what it may lean on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.security.scene import Seen


def always() -> bool:
    return True


class Row(NamedTuple):
    """One thing that the sandbox must hold.

    `number`: the group of assertions that it belongs to (`groups.GROUPS`).
    `held_by`: the layers, for the manual.
    `holds`: of the observations; False is a hole. None: `test` is the assertion.
    `mutants`: each must break it. `kernel`: the kernel refuses it to an unprivileged user anyway,
    proven in a bare `unshare -Ur`; with both, the mutants must break it where that proof fails.
    `here`: whether this host has the thing at all; without it there is nothing that a mutant could
    lay open.
    `test`, `counter_test`: node ids of an assertion with a scene of its own, and of its mutant.
    """

    number: int
    name: str
    held_by: str
    holds: Callable[[Seen], bool] | None = None
    mutants: tuple[str, ...] = ()
    side: Literal["inside", "host"] = "inside"
    kernel: bool = False
    here: Callable[[], bool] = always
    test: str = ""
    counter_test: str = ""
