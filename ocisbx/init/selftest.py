"""stand-in"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SelfTest(NamedTuple):
    rows: Mapping[str, str] = {}

    @property
    def landlock_abi(self) -> int | None:
        return None


def parse_self_test(text: str) -> SelfTest:
    rows = (line.partition(":") for line in text.splitlines())
    return SelfTest({name: value.strip() for name, colon, value in rows if colon})
