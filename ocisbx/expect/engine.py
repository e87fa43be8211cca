"""A script as a state machine: it asks for operations on a terminal, and is told how they went.

It waits for nothing itself, so that one engine serves threads and asyncio (ocisbx.expect.runner).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pexpect import EOF, TIMEOUT

from ocisbx.errors import ConfigError, ExpectEOF, ExpectTimeout, InvalidState, TerminalError
from ocisbx.expect import script as models
from ocisbx.expect.handover import Handle
from ocisbx.expect.params import load_params
from ocisbx.expect.patterns import compile_pattern
from ocisbx.expect.report import MAX_SHOWN, Outcome, ScriptReport, StepReport
from ocisbx.expect.shown import Shown, no_capture
from ocisbx.expect.template import joined, parse_template

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from ocisbx.expect.face import Face
    from ocisbx.terminal.terminal import Ending

# How long a program may take between its prompt and switching the echo off (getpass and ssh do it
# before; some shell scripts after).
ECHO_PATIENCE_S = 1.0
# How long a program whose output has ended may take to end, where no case waits for that.
END_PATIENCE_S = 0.5
PRIVATE = "[not kept: a person was typing]"


class Look(NamedTuple):
    """Wait for one of `patterns`; answered with its index, or ExpectTimeout or ExpectEOF."""

    patterns: tuple[Any, ...]
    timeout_s: float
    on_screen: bool = False


class Pause(NamedTuple):
    """Wait, while output is taken in."""

    seconds: float


class Type(NamedTuple):
    """Type keys; answered with the number of bytes, or TerminalError."""

    keys: str
    secret: bool
    timeout_s: float


class Handed(NamedTuple):
    """A person is needed; answered once the handle is no longer waiting."""

    handle: Handle


Operation = Look | Type | Pause | Handed


class _Stop(Exception):
    def __init__(self, outcome: Outcome, why: str, message: str = "") -> None:
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.why = why
        self.message = message


class _Progress:
    """What one step has done so far."""

    def __init__(self, limit_s: float) -> None:
        self.until = time.monotonic() + limit_s
        self.matches: list[tuple[int, str]] = []
        self.groups: tuple[str | None, ...] = ()
        self.before = ""
        self.truncated = False
        self.typed = 0
        self.began = time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds of the step that are left."""
        return max(0.0, self.until - time.monotonic())


class Engine:
    """Runs one script on one terminal; `work()` is driven by a runner.

    Raises ConfigError where a secret of the script is not among `secrets`, or `params` do not fit.
    """

    def __init__(
        self,
        script: models.Script,
        face: Face,
        secrets: Mapping[str, str],
        params: Mapping[str, str],
    ) -> None:
        missing = [name for name in script.secrets if name not in secrets]
        if missing:
            raise ConfigError(f"the secret {missing[0]} was not given")
        self._script = script
        self._face = face
        self._secrets = dict(secrets)
        self._params = load_params(script, params)
        for secret in self._secrets.values():
            face.hidden.add(secret)
        self._capture: Callable[[str], str] = no_capture
        # The same for who reads it.
        self._message_capture: Callable[[str], str] = no_capture
        self._shown = Shown(face.hidden)
        self._private = False
        self.reports: list[StepReport] = []
        self.outcome: Outcome | None = None
        self.why = self.message = ""
        self._began = time.monotonic()

    def report(self) -> ScriptReport:
        """What was done. Raises InvalidState: it is not over."""
        if self.outcome is None:
            raise InvalidState("the script is not over: it has no report yet")
        duration_s = round(time.monotonic() - self._began, 6)
        return ScriptReport(self.outcome, self.why, self.message, tuple(self.reports), duration_s)

    def work(self) -> Generator[Operation, Any, None]:
        """Asks for operations until the script is over; the outcome is then there."""
        for number, step in enumerate(self._script.steps, start=1):
            limit_s = self._script.timeout_s if step.timeout_s is None else step.timeout_s
            progress = _Progress(limit_s)
            try:
                yield from self._step(number, step, progress)
            except _Stop as stop:
                self._settle(number, step, progress, stop)
                return
            except ExpectTimeout as error:
                self._last_output(progress, step)
                self._settle(number, step, progress, _Stop("timed_out", error.what))
                return
            except ExpectEOF as error:
                self._last_output(progress, step)
                why = _with_ending(error.what, self._face.spawn.terminal.ending())
                self._settle(number, step, progress, _Stop("ended", why))
                return
            except (ConfigError, TerminalError) as error:
                ended = self._face.spawn.flag_eof and isinstance(error, TerminalError)
                outcome: Outcome = "ended" if ended else "error"
                self._settle(number, step, progress, _Stop(outcome, str(error)))
                return
            self._file(number, step, progress, "next", "")
        self.outcome = "ok"

    # ------------------------------------------------------------------------ reports
    def _settle(self, number: int, step: models.Step, progress: _Progress, stop: _Stop) -> None:
        self.outcome, self.why, self.message = stop.outcome, stop.why, stop.message
        self._file(number, step, progress, stop.outcome, self.why)

    def _file(
        self,
        number: int,
        step: models.Step,
        progress: _Progress,
        outcome: Outcome | Literal["next"],
        why: str,
    ) -> None:
        spawn = self._face.spawn
        ending = spawn.terminal.ending() if spawn.flag_eof else None
        self.reports.append(
            StepReport(
                number=number,
                name=step.name,
                kind=step.kind,
                outcome=outcome,
                why=why,
                matches=tuple(progress.matches),
                groups=progress.groups,
                before=progress.before[-MAX_SHOWN:],
                before_truncated=progress.truncated or len(progress.before) > MAX_SHOWN,
                typed=progress.typed,
                program_exit_code=None if ending is None else ending.exit_code,
                duration_s=round(time.monotonic() - progress.began, 6),
            )
        )

    def _last_output(self, progress: _Progress, step: models.Step | None = None) -> None:
        spawn = self._face.spawn
        typing = isinstance(step, (models.Send, models.SendLine, models.SendControl))
        before = (spawn.unread_text if typing else spawn.before) or ""
        self._keep_before(progress, before)

    def _keep_before(self, progress: _Progress, before: str, after: str = "") -> None:
        shown, is_cut = self._shown.before(before, after)
        progress.before = PRIVATE if self._private else shown
        progress.truncated = self._face.spawn.before_truncated or is_cut

    # ------------------------------------------------------------------------ steps
    def _step(
        self, number: int, step: models.Step, progress: _Progress
    ) -> Generator[Operation, Any, None]:
        terminal = self._face.spawn.terminal
        match step:
            case models.Expect() | models.ExpectScreen():
                texts = getattr(step, step.kind)
                patterns = tuple(compile_pattern(text) for text in texts)
                on_screen = isinstance(step, models.ExpectScreen)
                index = yield Look(patterns, progress.left_s, on_screen)
                self._found(index, progress, on_screen=on_screen)
            case models.ExpectExact():
                patterns = tuple(compile_pattern(re.escape(text)) for text in step.expect_exact)
                index = yield Look(patterns, progress.left_s)
                self._found(index, progress)
            case models.Cases():
                yield from self._cases(number, step, progress)
            case models.Send() | models.SendLine():
                end = "\n" if isinstance(step, models.SendLine) else ""
                text = getattr(step, step.kind)
                yield from self._type(text, end, progress, allow_echo=step.allow_echo)
            case models.SendControl():
                yield from self._press(step.sendcontrol, progress)
            case models.Signal():
                terminal.signal(step.signal)
            case models.Resize():
                terminal.resize(*step.resize)
            case models.Sleep():
                yield Pause(step.sleep_s)
            case models.NeedsUser():
                yield from self._hand_over(number, step.needs_user)

    def _cases(
        self, number: int, step: models.Cases, progress: _Progress
    ) -> Generator[Operation, Any, None]:
        patterns = tuple(map(_case_pattern, step.cases))
        turns = [0] * len(patterns)
        while True:
            index = yield Look(patterns, progress.left_s)
            if step.cases[index].eof:
                index = yield from self._at_the_end(step, progress)
            case = step.cases[index]
            private = self._private
            self._found(index, progress)
            turns[index] += 1
            if turns[index] > case.at_most:
                raise _Stop("fail", f"case {index + 1} came more than {case.at_most} times")
            message = self._message(case, private=private)
            yield from self._answer(case, progress)
            if case.action in ("ok", "fail"):
                why = f"case {index + 1} says {case.action}"
                if case.eof:
                    why = _with_ending(why, self._face.spawn.terminal.ending())
                raise _Stop("ok" if case.action == "ok" else "fail", why, message)
            if case.action == "next":
                return
            if case.action == "needs_user":
                waited = time.monotonic()
                yield from self._hand_over(number, message or "the program wants an answer")
                # A person takes the time that a person needs.
                progress.until += time.monotonic() - waited

    def _at_the_end(
        self, step: models.Cases, progress: _Progress
    ) -> Generator[Operation, Any, int]:
        """The output has ended: which case is for that, and for how the program did."""
        self._last_output(progress)
        asked = any(case.exit_code is not None for case in step.cases)
        until = time.monotonic() + END_PATIENCE_S
        if asked:
            until = max(until, progress.until)
        terminal = self._face.spawn.terminal
        while (ending := terminal.ending()) is None and time.monotonic() < until:
            yield Pause(0.01)
        for index, case in enumerate(step.cases):
            if case.eof and case.exit_code is None:
                return index
            if ending is None and case.timeout and asked:
                return index
            if ending is not None and ending.exit_code in (case.exit_code or ()):
                return index
        if ending is None:
            raise _Stop("timed_out", "the output has ended, and the program has not")
        if not ending.how:
            raise ConfigError("a case asks for the exit code, which nobody can tell here")
        raise _Stop("ended", _with_ending("no case is for this end of the program", ending))

    def _message(self, case: models.Case, *, private: bool) -> str:
        template = parse_template(case.message or "")
        if private and template.captures:
            return PRIVATE
        pieces = template.fill(self._message_capture, {}, self._params, typed=False)
        return self._face.hidden.mask_filled(pieces)

    def _answer(self, case: models.Case, progress: _Progress) -> Generator[Operation, Any, None]:
        if case.answer is not None:
            yield from self._type(case.answer, "\n", progress, allow_echo=case.allow_echo)
        elif case.send is not None:
            yield from self._type(case.send, "", progress, allow_echo=case.allow_echo)
        elif case.sendcontrol is not None:
            yield from self._press(case.sendcontrol, progress)

    def _press(self, key: str, progress: _Progress) -> Generator[Operation, Any, None]:
        yield Type(self._face.spawn.key(key), secret=False, timeout_s=progress.left_s)
        progress.typed += 1

    def _type(
        self, text: str, end: str, progress: _Progress, *, allow_echo: bool
    ) -> Generator[Operation, Any, None]:
        template = parse_template(text)
        keys = joined(template.fill(self._capture, self._secrets, self._params))
        secret = bool(template.secrets)
        if secret and not allow_echo:
            until = time.monotonic() + ECHO_PATIENCE_S
            while self._face.echo:
                if time.monotonic() >= until:
                    why = "the terminal shows what is typed: the secret was not typed"
                    raise _Stop("error", f"{why}; allow_echo = true types it nevertheless")
                yield Pause(0.01)
        # A capture may be one, too.
        secret = secret or self._face.hidden.stands_in(keys)
        yield Type(keys + end, secret, progress.left_s)
        progress.typed += 1

    def _hand_over(self, number: int, message: str) -> Generator[Operation, Any, None]:
        self._set_private(private=True)
        handle = Handle(number, message, self._face.spawn.take_in)
        yield Handed(handle)
        if handle.state != "done":
            raise _Stop("needs_user", handle.why, message)

    def _set_private(self, *, private: bool) -> None:
        """Until the next match what is typed and printed is a person's: it stands nowhere."""
        self._private = private
        self._face.spawn.terminal.set_private(private=private)

    def _found(self, index: int, progress: _Progress, *, on_screen: bool = False) -> None:
        """File a match; what the next answers may take from it."""
        face = self._face
        match: Any = face.screen_match if on_screen else face.spawn.match
        private = self._private
        if match in (EOF, TIMEOUT):
            if not on_screen:
                self._last_output(progress)
                self._set_private(private=False)
            progress.matches.append((index + 1, ""))
            progress.groups, self._capture, self._message_capture = (), no_capture, no_capture
            return
        if on_screen:
            told = self._shown.seen(match)
        else:
            before = face.spawn.before or ""
            self._keep_before(progress, before, match.string[match.start() :])
            told = self._shown.taken(match, before)
            self._set_private(private=False)
        progress.matches.append((index + 1, PRIVATE if private else told.text))
        progress.groups = () if private else told.groups
        self._capture, self._message_capture = told.capture, told.shown


def _with_ending(text: str, ending: Ending | None) -> str:
    """`text`, and in parentheses how the program ended, where that is known."""
    return f"{text} ({ending.how})" if ending is not None and ending.how else text


def _case_pattern(case: models.Case) -> Any:  # noqa: ANN401 -- a Pattern, EOF or TIMEOUT
    if case.eof:
        return EOF
    if case.timeout:
        return TIMEOUT
    return compile_pattern(re.escape(case.exact) if case.exact is not None else case.expect or "")
