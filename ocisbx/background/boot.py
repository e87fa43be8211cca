"""The program of a supervisor, run as a file: `python boot.py PARENT ID`. Its imports, made small.

There is one supervisor for each container, and a tenth of it would be what it never uses. Of
`typing` a handful of names mean something while a program runs (0.6 MiB), a class of its own for
each named tuple need not repeat what all have in common (0.3), of `collections` and `weakref` a
part does (0.3), and a regular expression that nobody looks for need not be compiled (0.3). So the
modules are imported beside stand-ins for these. A stand-in has what is asked of it here; for the
rest it gets the real module, and the supervisor is only larger. They are there for the modules that
most containers need: whatever is imported otherwise has the real ones.
"""

from __future__ import annotations

import _collections  # type: ignore[import-not-found]
import _collections_abc
import _frozen_importlib_external
import _weakrefset
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self


# ------------------------------------------------------------------------------------ named tuples
class Row(tuple):  # type: ignore[type-arg]
    """What all named tuples have in common, once; each of collections' has a copy of its own."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _field_defaults: dict[str, Any] = {}  # noqa: RUF012 -- as namedtuple's

    def __new__(cls, *values: Any, **named: Any) -> Self:  # noqa: ANN401 -- as namedtuple's
        """One row. Raises TypeError: there are not as many values as fields."""
        if named or len(values) != len(cls._fields):
            missing = cls._fields[len(values) :]
            given = cls._field_defaults | named
            fits = named.keys() <= {*missing} <= given.keys()
            if not fits or len(values) > len(cls._fields):
                raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}")
            values = (*values, *[given[name] for name in missing])
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        return cls(*values)

    def _replace(self, /, **changes: Any) -> Self:  # noqa: ANN401 -- as namedtuple's
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(changes)}")
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self._asdict().items())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


def make_row(name: str, fields: Iterable[str], namespace: dict[str, Any]) -> type:
    """The class of a named tuple with all that `namespace` has; the defaults are there, too."""
    names = tuple(fields)
    defaults = {field: namespace[field] for field in names if field in namespace}
    own = {"__slots__": (), "__match_args__": names, "_fields": names, "_field_defaults": defaults}
    getter = _collections._tuplegetter  # noqa: SLF001 -- namedtuple's own
    getters = {field: getter(index, None) for index, field in enumerate(names)}
    return type(name, (Row,), namespace | own | getters)


def namedtuple(name: str, fields: str | Iterable[str], *, module: str | None = None) -> type:
    """Stands for collections.namedtuple."""
    names = fields.replace(",", " ").split() if isinstance(fields, str) else fields
    return make_row(name, names, {"__module__": module})


class NamedTupleMaker(type):
    """Makes of `class X(NamedTuple)` what typing makes of it, but for types of its fields."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, root: bool = False
    ) -> Any:  # noqa: ANN401 -- the class that was asked for
        """The class `name`."""
        if root:
            return super().__new__(cls, name, bases, namespace)
        return make_row(name, namespace.pop("__annotations__", {}), namespace)


class NamedTuple(metaclass=NamedTupleMaker, root=True):
    """Stands for typing.NamedTuple."""


# ----------------------------------------------------------------------------- regular expressions
class Pattern:
    """What re.compile returns: compiled when it is first looked for."""

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 -- as re's
        self._given = given

    def match(self, *where: Any) -> Any:  # noqa: ANN401 -- as re's
        """json binds it when it is imported."""
        return self.__getattr__("match")(*where)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- as re's
        return getattr(real("re").compile(*self._given), name)


class Blanks(Pattern):
    """What json skips around a document: the only one that every supervisor looks for."""

    PATTERN = r"[ \t\n\r]*"
    CHARACTERS = frozenset(" \t\n\r")

    def match(self, text: str, start: int) -> Any:  # noqa: ANN401 -- as re's
        end = start
        while text[end : end + 1] in Blanks.CHARACTERS:
            end += 1
        return Match(end)


class Match:
    """Where one was found."""

    def __init__(self, end: int) -> None:
        self._end = end

    def end(self) -> int:
        return self._end


def compile_later(pattern: str, flags: int = 0) -> Pattern:
    """Stands for re.compile."""
    return (Blanks if pattern == Blanks.PATTERN else Pattern)(pattern, flags)


# -------------------------------------------------------------------------------------- the modules
class Anything:
    """Stands for every name that only annotates: a base class, or Name[...]."""

    def __class_getitem__(cls, _: object) -> type:
        return cls


class StandIn(ModuleType):
    """A part of a module; whoever asks for another gets the real module's."""

    def __init__(self, name: str, **part: Any) -> None:  # noqa: ANN401 -- as modules are
        super().__init__(name)
        vars(self).update(part)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- as modules are
        if name.startswith("__"):
            # The machinery of imports asks.
            raise AttributeError(name)
        return getattr(real(self.__name__), name)


def real(name: str) -> ModuleType:
    """The module that one stands for."""
    _forget(lambda one: one.partition(".")[0] == name.partition(".")[0])
    __import__(name)
    return sys.modules[name]


def _forget(concerns: Callable[[str], bool]) -> None:
    for name, module in [*sys.modules.items()]:
        if isinstance(module, StandIn) and concerns(name):
            del sys.modules[name]


ANNOTATING = ("Annotated", "Any", "Final", "Literal", "NoReturn", "Protocol", "Self", "TypeAlias")
ABC = StandIn(
    "collections.abc", **{name: vars(_collections_abc)[name] for name in _collections_abc.__all__}
)
STAND_INS = (
    StandIn(
        "collections",
        OrderedDict=_collections.OrderedDict,
        abc=ABC,
        defaultdict=_collections.defaultdict,
        deque=_collections.deque,
        namedtuple=namedtuple,
    ),
    ABC,
    StandIn("re", compile=compile_later, VERBOSE=64, MULTILINE=8, DOTALL=16),
    # socket needs it for its sendfile() only.
    StandIn("selectors"),
    StandIn(
        "typing",
        NamedTuple=NamedTuple,
        TYPE_CHECKING=False,
        TypeVar=lambda _: Anything,
        cast=lambda _, value: value,
        **dict.fromkeys(ANNOTATING, Anything),
    ),
    StandIn("weakref", WeakSet=_weakrefset.WeakSet),
)


def import_small(name: str) -> None:
    """Import a module of ours beside the stand-ins of those that are not there already."""
    for one in STAND_INS:
        whole = sys.modules.get(one.__name__.partition(".")[0], one)
        if isinstance(whole, StandIn):
            sys.modules[one.__name__] = one
    try:
        __import__(name)
    finally:
        _forget(lambda _: True)


def note_compiled() -> list[str]:
    """The paths of modules that have to be compiled from now on, as far as it has come."""
    loader: Any = _frozen_importlib_external.SourceFileLoader
    compile_module = loader.source_to_code
    noted: list[str] = []

    def compile_and_note(*given: Any, **options: Any) -> Any:  # noqa: ANN401 -- as the loader's
        noted.append(given[2])
        return compile_module(*given, **options)

    loader.source_to_code = compile_and_note
    return noted


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    noted = note_compiled()
    import_small("ocisbx.background.supervisor")
    sys.modules["ocisbx.background.supervisor"].main(import_small, noted)
