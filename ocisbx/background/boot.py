"""The program of a supervisor, run as a file: `python boot.py PARENT ID`. Its imports, made small.

Of `typing` a handful of names mean something while a program runs. It takes 0.6 MiB to import, and
what it keeps of each field of a NamedTuple as much again: a tenth of a supervisor, of which there
is one for each container. So the modules are imported beside a stand-in that makes ordinary named
tuples, and is gone when the last of them is there: whatever is imported later has the real one.
"""

from __future__ import annotations

import collections
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NamedTupleMaker(type):
    """Makes of `class X(NamedTuple)` what typing makes of it, but for types of its fields."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, root: bool = False
    ) -> Any:  # noqa: ANN401 -- the class that was asked for
        """The class `name`."""
        if root:
            return super().__new__(cls, name, bases, namespace)
        fields = namespace.pop("__annotations__", {})
        defaults = [namespace.pop(field) for field in fields if field in namespace]
        make: Any = collections.namedtuple  # noqa: PYI024 -- what typing makes, too
        made = make(name, fields, defaults=defaults, module=namespace.pop("__module__"))
        for key, value in namespace.items():
            setattr(made, key, value)
        return made


class NamedTuple(metaclass=NamedTupleMaker, root=True):
    """Stands for typing.NamedTuple."""


class Anything:
    """Stands for every name that only annotates: a base class, or Name[...]."""

    def __class_getitem__(cls, _: object) -> type:
        return cls


def stand_in() -> ModuleType:
    module = ModuleType("typing")
    names = ("Annotated", "Any", "Final", "Literal", "NoReturn", "Protocol", "Self", "TypeAlias")
    vars(module).update(dict.fromkeys(names, Anything))
    vars(module).update(
        TYPE_CHECKING=False,
        NamedTuple=NamedTuple,
        TypeVar=lambda _: Anything,
        cast=lambda _, value: value,
    )
    return module


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    # socket needs selectors for its sendfile() only.
    sys.modules |= {"typing": stand_in(), "selectors": ModuleType("selectors")}
    from ocisbx.background.supervisor import main

    del sys.modules["typing"], sys.modules["selectors"]
    main()
