"""Scripts for a terminal as typed models: what stands in the file of `ocisbx expect`.

A step is a table with exactly one of the keys that name its kind (`expect`, `sendline`, `cases`,
...). ocisbx-expect(5) is the manual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, Tag, WithJsonSchema

from ocisbx import documents, fields, quantities, values
from ocisbx.errors import ConfigError
from ocisbx.expect.patterns import compile_pattern
from ocisbx.expect.template import check_line, parse_template
from ocisbx.terminal.device import check_size, control_key

DEFAULT_TIMEOUT_S = 30.0
MAX_STEPS = 10_000
MAX_TURNS = 1_000_000


def _pattern(value: object) -> str:
    text = values.check_text(value, "a pattern")
    compile_pattern(text)
    return text


def _patterns(value: object) -> tuple[str, ...]:
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        raise ConfigError("it is empty", why="expected one pattern, or a list of them")
    return tuple(map(_pattern, several))


def _texts(value: object) -> tuple[str, ...]:
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several or not all(several):
        raise ConfigError("it is empty", why="expected one text, or a list of them")
    return tuple(values.check_text(text) for text in several)


def _template(value: object) -> str:
    text = value if isinstance(value, str) else values.check_text(value)
    parse_template(text)
    return text


def _line(value: object) -> str:
    return check_line(_template(value))


def _value(value: object) -> str:
    return check_line(values.check_text(value))


def _exit_codes(value: object) -> tuple[int, ...]:
    several = value if isinstance(value, (list, tuple)) else [value]
    for code in several:
        if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
            raise values.refusal(code, "an exit code", "expected a whole number from 0 to 255")
    if not several:
        raise ConfigError("it is empty", why="expected one exit code, or a list of them")
    return tuple(several)


def _key(value: object) -> str:
    text = values.check_text(value, "a key")
    control_key(text)
    return text


def _signal(value: object) -> int:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return quantities.parse_signal(value)
    raise values.refusal(value, "a signal", "expected a name such as INT, or a number")


def _size(value: object) -> tuple[int, int]:
    if (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(number, int) and not isinstance(number, bool) for number in value)
    ):
        return check_size(*value)
    raise values.refusal(value, "a size", "expected [rows, columns], such as [24, 80]")


_ONE_OR_MORE = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ]
}
PatternText = Annotated[str, fields.parsed(_pattern)]
Patterns = Annotated[tuple[str, ...], fields.parsed(_patterns), WithJsonSchema(_ONE_OR_MORE)]
Texts = Annotated[tuple[str, ...], fields.parsed(_texts), WithJsonSchema(_ONE_OR_MORE)]
_EXIT_CODE = {"type": "integer", "minimum": 0, "maximum": 255}
ExitCodes = Annotated[
    tuple[int, ...],
    fields.parsed(_exit_codes),
    WithJsonSchema({"anyOf": [_EXIT_CODE, {"type": "array", "items": _EXIT_CODE, "minItems": 1}]}),
]
TemplateText = Annotated[str, fields.parsed(_template)]
Line = Annotated[str, fields.parsed(_line)]
Value = Annotated[str, fields.parsed(_value)]
Key = Annotated[str, fields.parsed(_key)]
SignalNumber = Annotated[
    int, fields.parsed(_signal), WithJsonSchema({"type": ["string", "integer"]})
]
Size = Annotated[
    tuple[int, int],
    fields.parsed(_size),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 65_535},
            "minItems": 2,
            "maxItems": 2,
        }
    ),
]
Turns = Annotated[int, Field(ge=1, le=MAX_TURNS, strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Step(_Table):
    kind: ClassVar[str]

    name: str | None = Field(default=None, max_length=200)
    """What the report calls the step."""
    timeout_s: fields.Grace | None = None
    """Seconds for the whole step; 0 looks only at what is there; the script's where left out."""


class Expect(_Step):
    """Wait until a pattern appears."""

    kind = "expect"
    expect: Patterns
    """A pattern, or several, of which the first in the output counts."""


class ExpectExact(_Step):
    """Wait until a text appears."""

    kind = "expect_exact"
    expect_exact: Texts
    """A text, or several, of which the first in the output counts."""


class ExpectScreen(_Step):
    """Wait until a pattern stands on the screen."""

    kind = "expect_screen"
    expect_screen: Patterns
    """A pattern, or several; lines are parted by newlines, without the blanks at their ends."""


class _Typing(_Step):
    allow_echo: StrictBool = False
    """Type a secret although the terminal shows what is typed."""


class Send(_Typing):
    """Type keys as they are."""

    kind = "send"
    send: TemplateText
    """The keys; no Enter is added."""


class SendLine(_Typing):
    """Type a line and Enter."""

    kind = "sendline"
    sendline: Line
    """The line; no control character."""


class SendControl(_Step):
    """Press Ctrl and a key."""

    kind = "sendcontrol"
    sendcontrol: Key
    """The key: c interrupts, d ends the input, z stops, [ is Escape, m is a keyboard's Enter."""


class Case(_Table):
    """What may appear, and what then is done: one of expect, exact, eof and timeout."""

    expect: PatternText | None = None
    """A pattern."""
    exact: str | None = Field(default=None, min_length=1)
    """A text."""
    eof: Literal[True] | None = None
    """The end of the output."""
    exit_code: ExitCodes | None = None
    """With eof: what the program must have exited with, one code or several; it is waited for."""
    timeout: Literal[True] | None = None
    """The end of the step's time."""
    answer: Line | None = None
    """A line that is typed then, and Enter."""
    send: TemplateText | None = None
    """Keys that are typed then, as they are."""
    sendcontrol: Key | None = None
    """Ctrl and a key, pressed then."""
    allow_echo: StrictBool = False
    """Type a secret although the terminal shows what is typed."""
    action: Literal["ok", "fail", "continue", "next", "needs_user"] = "next"
    """next: go on with the next step; continue: wait for a further case; ok, fail: the script ends
    so; needs_user: a person takes over, then as continue."""
    at_most: Turns = 100
    """How often it may match in this step; beyond it the script fails."""
    message: TemplateText | None = None
    """What the report, or the person, is told."""


class Cases(_Step):
    """Wait for one of several cases; the first in the output counts, then the first in the list."""

    kind = "cases"
    cases: tuple[Case, ...] = Field(min_length=1, max_length=100)
    """What may appear."""


class Signal(_Step):
    """Signal the program; sendcontrol = "c" reaches what is in the foreground."""

    kind = "signal"
    signal: SignalNumber
    """A name such as INT, or a number."""


class Resize(_Step):
    """Give the terminal another size."""

    kind = "resize"
    resize: Size
    """Rows and columns."""


class Sleep(_Step):
    """Do nothing for a while."""

    kind = "sleep_s"
    sleep_s: fields.Grace
    """Seconds."""


class NeedsUser(_Step):
    """A person takes over, and ends the step."""

    kind = "needs_user"
    needs_user: str = Field(max_length=1000)
    """What the person is told."""


KINDS: dict[str, type[_Step]] = {
    model.kind: model
    for model in (
        *(Expect, ExpectExact, ExpectScreen, Send, SendLine, SendControl, Cases),
        *(Signal, Resize, Sleep, NeedsUser),
    )
}


def _kind_of(value: object) -> str | None:
    """The one key of KINDS that a step has; None where there is none, or more than one."""
    if isinstance(value, _Step):
        return value.kind
    named = [key for key in value if key in KINDS] if isinstance(value, Mapping) else []
    return named[0] if len(named) == 1 else None


Step = Annotated[
    Annotated[Expect, Tag("expect")]
    | Annotated[ExpectExact, Tag("expect_exact")]
    | Annotated[ExpectScreen, Tag("expect_screen")]
    | Annotated[Send, Tag("send")]
    | Annotated[SendLine, Tag("sendline")]
    | Annotated[SendControl, Tag("sendcontrol")]
    | Annotated[Cases, Tag("cases")]
    | Annotated[Signal, Tag("signal")]
    | Annotated[Resize, Tag("resize")]
    | Annotated[Sleep, Tag("sleep_s")]
    | Annotated[NeedsUser, Tag("needs_user")],
    Discriminator(
        _kind_of,
        custom_error_type="step_kind",
        custom_error_message=f"a step has exactly one of the keys {', '.join(KINDS)}",
    ),
]


class Secret(_Table):
    """Where a secret comes from: one of the two."""

    env: fields.EnvName | None = None
    """The caller's variable."""
    file: fields.AbsolutePath | None = None
    """A file; the end of its last line does not count."""


class Param(_Table):
    """What who runs the script may say."""

    default: Value | None = None
    """Its value where none is given; without it one must be."""


class Script(_Table):
    """Steps for a program on a terminal."""

    command: tuple[str, ...] = ()
    """The program and its arguments, where the command line names none; ${param:NAME} is filled in,
    and no other $ is special."""
    timeout_s: fields.Seconds = DEFAULT_TIMEOUT_S
    """Seconds for each step that says nothing else."""
    size: Size = (24, 80)
    """Rows and columns of the terminal."""
    secrets: Annotated[Mapping[str, Secret], fields.Frozen] = Field(
        default_factory=documents.FrozenDict
    )
    """Names, for ${secret:NAME}, and where each comes from."""
    params: Annotated[Mapping[str, Param], fields.Frozen] = Field(
        default_factory=documents.FrozenDict
    )
    """Names, for ${param:NAME}, and their defaults; what they hold is no secret."""
    steps: tuple[Step, ...] = Field(min_length=1, max_length=MAX_STEPS)
    """What is done, in this order."""
