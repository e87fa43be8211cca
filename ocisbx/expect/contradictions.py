"""What the fields of a script alone cannot tell: that they fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ocisbx import values
from ocisbx.errors import ConfigError
from ocisbx.expect.patterns import compile_pattern
from ocisbx.expect.script import Case, Cases, Script, Send, SendLine
from ocisbx.expect.template import params_in, parse_template

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[str | int, ...]


class Problem(NamedTuple):
    """What is wrong with a script; `path` as keys and indices from the top."""

    path: Place
    text: str


def contradictions(script: Script) -> Iterator[Problem]:
    """Captures, secrets and parameters that are not there, cases that cannot come, and the like."""
    for name, secret in script.secrets.items():
        if (secret.env is None) == (secret.file is None):
            yield Problem(("secrets", name), "expected one of env and file")
    yield from _names(script)
    for index, word in enumerate(script.command):
        for name in params_in(word):
            yield from _unknown(script, ("command", index), "param", name)
    for index, step in enumerate(script.steps):
        path = ("steps", index)
        if isinstance(step, (Send, SendLine)):
            yield from _unknown_names(script, (*path, step.kind), getattr(step, step.kind))
        elif isinstance(step, Cases):
            yield from _of_ends(path, step)
            for number, case in enumerate(step.cases):
                yield from _of_case(script, (*path, "cases", number), case)


def _names(script: Script) -> Iterator[Problem]:
    for table in ("secrets", "params"):
        for name in getattr(script, table):
            try:
                parse_template(f"${{secret:{name}}}")
            except ConfigError:
                yield Problem((table, name), "a name is letters, digits and _")


def _of_ends(path: Place, step: Cases) -> Iterator[Problem]:
    """Cases for an end of the program that a case before them takes already."""
    every: int | None = None
    for number, case in enumerate(step.cases):
        if case.exit_code is not None and not case.eof:
            what = "goes with eof = true: a program that still runs has none"
            yield Problem((*path, "cases", number, "exit_code"), what)
        elif case.eof and every is not None:
            what = f"cases[{every}] is for every end already, and comes first"
            yield Problem((*path, "cases", number, "eof"), what)
        elif case.eof and case.exit_code is None:
            every = number


def _of_case(script: Script, path: Place, case: Case) -> Iterator[Problem]:
    wanted = [key for key in ("expect", "exact", "eof", "timeout") if getattr(case, key)]
    if len(wanted) != 1:
        yield Problem(path, "expected one of expect, exact, eof and timeout")
        return
    typed = [key for key in ("answer", "send", "sendcontrol") if getattr(case, key) is not None]
    if len(typed) > 1:
        yield Problem((*path, typed[1]), f"cannot stand beside {typed[0]}")
    if typed and case.eof:
        yield Problem((*path, typed[0]), "nobody reads after the end of the output")
    if case.eof and case.action in ("continue", "needs_user"):
        yield Problem((*path, "action"), f"{case.action}: nothing comes after the end")
    if case.timeout and case.action in ("continue", "needs_user"):
        yield Problem((*path, "action"), f"{case.action}: the step's time is over")
    names = {"0"}
    if case.expect is not None:
        pattern = compile_pattern(case.expect)
        names |= {*map(str, range(pattern.groups + 1)), *pattern.groupindex}
    for key in ("answer", "send", "message"):
        text = getattr(case, key)
        template = parse_template(text or "")
        for name in template.captures:
            if name not in names or case.eof or case.timeout:
                yield Problem((*path, key), f"${{{name}}}: the case captures no such thing")
        if key == "message" and template.secrets:
            yield Problem((*path, key), "a message is shown, and no place for a secret")
        else:
            yield from _unknown_names(script, (*path, key), text or "")


def _unknown_names(script: Script, path: Place, text: str) -> Iterator[Problem]:
    template = parse_template(text)
    for name in template.secrets:
        yield from _unknown(script, path, "secret", name)
    for name in template.params:
        yield from _unknown(script, path, "param", name)


def _unknown(script: Script, path: Place, kind: str, name: str) -> Iterator[Problem]:
    known = script.secrets if kind == "secret" else script.params
    if name not in known:
        hint = values.did_you_mean(name, known)
        yield Problem(path, f"${{{kind}:{name}}}: [{kind}s] has no such name{hint}")
