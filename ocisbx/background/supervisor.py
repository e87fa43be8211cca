"""The supervisor of one container in the background: a process of its own, as small as Python is.

`launch` starts it with a socket to the caller as descriptor 3, on which comes what is to be run. It
runs that as any other call is run, answers at its control socket meanwhile, leaves the verdict in
the container's directory, and ends. Nothing here is imported that waiting does not need.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource  # noqa: F401 -- else os.wait4 imports it, after the fork that sheds what that took
import signal
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ocisbx.backends.base import Call, Step
from ocisbx.backends.names import claim_name, release_name
from ocisbx.background.control import Control, Events
from ocisbx.background.ending import make_directory, write_ending, write_started
from ocisbx.background.loading import AUDIT, begin_again_if_compiled, load_for
from ocisbx.background.packets import error_document
from ocisbx.background.request import CALLER_FD, Request, read_request, send_line
from ocisbx.background.times import TimesWriter
from ocisbx.background.used import last_used
from ocisbx.bundle.directory import remove_tree
from ocisbx.bundle.record import boot_s, new_record
from ocisbx.calls import Waiting, run_plan
from ocisbx.command import LOOK_S, go_on_alone
from ocisbx.errors import BundleError, InvalidState, OcisbxError

if TYPE_CHECKING:
    from ocisbx.backends.execution import OciExecution
    from ocisbx.background.attaching import Attachments
    from ocisbx.background.control import Answer
    from ocisbx.background.loading import ImportSmall
    from ocisbx.result import RunResult


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CalledOff(Exception):
    """Nobody wants it any more, before its payload was started."""


def main(import_small: ImportSmall, compiled: list[str]) -> None:
    """The process: `python ... PARENT ID [again]`. `compiled`: the modules that had to be."""
    gc.freeze()
    os.umask(0o022)
    os.chdir("/")
    begin_again_if_compiled(compiled)
    caller = socket.socket(fileno=CALLER_FD)
    try:
        request = read_request(caller)
        load_for(request, import_small)
        # A process that is nobody's child leaves no zombie to a caller that lives for long.
        go_on_alone()
        Supervision(caller, request, import_small).carry_out()
    finally:
        # Everything is written and closed; to take the interpreter down costs 5 ms.
        os._exit(0)


class Supervision:
    """One container from its creation to its end."""

    def __init__(self, caller: socket.socket, request: Request, import_small: ImportSmall) -> None:
        self._caller: socket.socket | None = caller
        self._import_small = import_small
        self._request = request
        plan = request.plan
        self._record = new_record(
            request.id,
            request.name,
            list(request.argv),
            plan.workdir,
            f"{plan.runtime.name} {plan.runtime.version}",
            request.parent_id,
        )
        self._events = Events()
        self._execution: OciExecution | None = None
        self._attached: Attachments | None = None
        self._answers: list[Answer] = []
        self._wanted = request.start
        self._running = False
        self._called_off = False

    def carry_out(self) -> None:
        """All of it."""
        try:
            self._create()
        except (OSError, OcisbxError) as error:
            self._tell({"failed": error_document(error)})
            return
        for number in ENDINGS:
            signal.signal(number, self._on_signal)
        try:
            if not self._wanted:
                self._tell({"created": self._record.id})
                self._let_go()
            self._await_start()
        except CalledOff:
            self._remove()
            return
        ending = self._run()
        if self._request.start and not self._running:
            # The caller is told, and there is nothing to keep.
            self._remove()
            self._tell({"never_ran": ending})
            return
        with contextlib.suppress(OSError):
            # On a disk that cannot even take this it counts as lost, which is true.
            write_ending(self._record, ending)
        self._answer({"ok": {}} if "result" in ending else {"error": ending["error"]})
        # Before the farewell: who waits for the end waits for nobody's terminal.
        self._control.close()
        if self._attached is not None:
            self._attached.close()

    # ------------------------------------------------------------------------------ its directory
    def _create(self) -> None:
        # Whoever sees the record can ask.
        self._control = Control(self._record.id, self._events, self._handle)
        make = partial(make_directory, self._record)
        try:
            if self._request.name is None:
                make()
            else:
                claim_name(self._request.name, self._record.id, make)
        except BaseException:
            self._control.close()
            raise

    def _remove(self) -> None:
        with contextlib.suppress(BundleError):
            remove_tree(self._record.path)
        if self._request.name is not None:
            with contextlib.suppress(OSError):
                release_name(self._request.name, self._record.id)
        self._answer({"ok": {}})
        self._control.close()

    # ----------------------------------------------------------------------------------- the call
    def _await_start(self) -> None:
        caller = self._caller
        if caller is not None:
            self._events.watch(caller.fileno(), self._on_caller)
        if self._request.parent is not None:
            self._events.watch(self._request.parent, self._on_orphaned)
        while not self._wanted:
            self._events.turn(LOOK_S)
            self._check()

    def _run(self) -> dict[str, Any]:
        """What happened, as it is kept."""
        request = self._request
        times = TimesWriter(self._record.path)
        keyboard = self._open_keyboard()
        call = Call(
            argv=request.argv,
            environment=request.environment,
            extra_environment=request.extra_environment,
            name=request.name,
            id=self._record.id,
            keep_in=self._record.path,
            stdin=request.stdin if keyboard is None else keyboard,
            on_stdout=lambda data: times.took("stdout", len(data)),
            on_stderr=lambda data: times.took("stderr", len(data)),
            on_step=self._on_step,
            start_timeout_s=request.start_timeout_s,
            recorder=self._attached if request.plan.terminal else None,
        )
        self._begin_transcript(call.term)
        try:
            if not request.plan.holds():
                raise InvalidState(
                    "the host changed since the container was created", remedy="create it again"
                )
            result = run_plan(
                request.plan,
                call,
                resolve_s=request.resolve_s,
                audit=request.audit,
                hold=self._hold,
                waiting=Waiting(self._pause, self._tell_waiting),
            )
        except CalledOff:
            return {"error": error_document(InvalidState("it was called off before it started"))}
        except Exception as error:  # noqa: BLE001 -- handed to whoever asks how it ended
            return {"error": error_document(error)}
        return {"result": _document(result)}

    def _open_keyboard(self) -> int | None:
        """What comes from those who attach, as the payload's input; None: a terminal gets it, or
        they type nothing."""
        if not (self._request.plan.terminal or self._request.keyboard):
            return None
        from ocisbx.background.attaching import Attachments  # noqa: PLC0415 -- for those who have one

        self._attached = Attachments(self._events)
        if self._request.plan.terminal:
            return None
        # It has no end: others may attach.
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write_fd, False)
        self._attached.open(write_fd)
        return read_fd

    def _begin_transcript(self, term: str) -> None:
        if self._attached is None or self._request.transcript is None:
            return
        from ocisbx.terminal.device import DEFAULT_SIZE  # noqa: PLC0415 -- for terminals only
        from ocisbx.terminal.transcript import Transcript  # noqa: PLC0415 -- for who wants one

        self._attached.record(Transcript(self._request.transcript, DEFAULT_SIZE, term))

    def _open_terminal(self) -> None:
        from ocisbx.backends.terminal import TerminalExecution  # noqa: PLC0415 -- loaded by then
        from ocisbx.background.attaching import Resizing  # noqa: PLC0415 -- as above

        execution = self._execution
        if self._attached is None or not isinstance(execution, TerminalExecution):
            return
        resizing = Resizing(execution.resize, execution.nudge)
        self._attached.open(os.dup(execution.terminal.controller_fd), resizing)

    def _hold(self, execution: OciExecution) -> None:
        self._execution = execution
        execution.attended[self._events.fileno()] = self._events.turn
        self._events.at_rest(lambda until: execution.set_alarm(until, self._events.turn))
        if not self._request.argv:
            self._watch_idleness(execution)
        if self._called_off:
            execution.cancel()

    def _on_step(self, step: Step) -> None:
        if step is Step.REPORTED and self._request.audit:
            # It would be imported anyway, and take 5 ms more.
            self._import_small(AUDIT)
        # A session runs when it takes commands.
        if step is not (Step.RUNNING if self._request.argv else Step.CREATED):
            return
        self._running = True
        if self._request.plan.terminal:
            self._open_terminal()
        with contextlib.suppress(OSError):
            write_started(self._record)
        self._answer({"ok": {}})
        self._tell({"started": self._record.id})
        self._let_go()
        gc.collect()

    def _watch_idleness(self, execution: OciExecution) -> None:
        """End a session that is too old, or was not used for too long; else look again in time."""
        now, record = boot_s(), self._record
        ends = []
        if self._request.lifetime_s is not None:
            ends.append(record.created_boot_s + self._request.lifetime_s)
        if self._request.idle_s is not None:
            ends.append(last_used(record.path, record.created_boot_s) + self._request.idle_s)
        if not ends:
            return
        if now >= min(ends):
            execution.cancel()
            return
        wake_at = time.monotonic() + min(ends) - now
        execution.set_alarm(wake_at, partial(self._watch_idleness, execution))

    def _pause(self, seconds: float) -> None:
        self._events.turn(seconds)
        self._check()

    def _check(self) -> None:
        if self._called_off:
            raise CalledOff

    # -------------------------------------------------------------------------------- who asks
    def _handle(self, verb: str, members: dict[str, Any], answer: Answer) -> None:
        """One request of the control socket."""
        if verb == "start" and not self._wanted:
            self._wanted = True
            self._answers.append(answer)
        elif verb == "discard" and not self._wanted:
            self._answers.append(answer)
            self._call_off()
        elif verb in ("start", "discard"):
            answer({"error": error_document(self._refusal("has been started already"))})
        elif self._execution is None or not self._running:
            answer({"error": error_document(self._refusal("has not been started"))})
        elif verb == "attach":
            self._attach(members["size"], answer)
        elif verb == "orders":
            plan = self._request.plan.for_commands().to_json()
            box = self._execution.box
            cgroup = "" if box is None else box.path
            try:
                orders = self._execution.share_init()
            except ConnectionError:
                answer({"error": error_document(self._refusal("has ended"))})
                return
            ends_idle = self._request.idle_s is not None
            answer({"ok": {"plan": plan, "cgroup": cgroup, "ends_idle": ends_idle}}, orders)
        else:
            answer({"ok": self._act(self._execution, verb, members)})

    def _attach(self, size: list[int] | None, answer: Answer) -> None:
        told = {"terminal": self._request.plan.terminal}
        if self._attached is None:
            answer({"ok": told})
            return
        try:
            theirs = self._attached.add(size)
        except InvalidState as error:
            answer({"error": error_document(error)})
            return
        with theirs:
            answer({"ok": told}, theirs.fileno())

    def _act(self, execution: OciExecution, verb: str, members: dict[str, Any]) -> dict[str, Any]:
        if verb == "signal":
            execution.kill(members["number"])
        elif verb == "stop":
            execution.cancel(members["grace_s"])
        else:
            usage = execution.usage()
            return usage._asdict() | {"pressure": usage.pressure._asdict()}
        return {}

    def _refusal(self, state: str) -> InvalidState:
        return InvalidState(
            f"{self._record.name or self._record.id} {state}",
            remedy="ocisbx ps -a tells the state of each container",
        )

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._call_off()
        if self._execution is None and not self._wanted:
            raise CalledOff

    def _on_orphaned(self) -> None:
        assert self._request.parent is not None
        self._events.forget(self._request.parent)
        self._call_off()

    def _call_off(self) -> None:
        self._called_off = True
        if self._execution is not None:
            self._execution.cancel()

    # ------------------------------------------------------------------------------- the caller
    def _on_caller(self) -> None:
        """It says nothing more, so it is gone: what it never heard of shall not run."""
        self._let_go()
        self._call_off()

    def _let_go(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            self._events.forget(caller.fileno())
            caller.close()

    def _tell(self, document: dict[str, Any]) -> None:
        if self._caller is not None:
            send_line(self._caller, document)

    def _tell_waiting(self, text: str) -> None:
        self._tell({"say": text})

    def _answer(self, document: dict[str, Any]) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            answer(document)


def _document(result: RunResult) -> dict[str, Any]:
    """The result without what was printed: that lies beside it."""
    document = result.to_dict(output=False)
    return document | {"hint": None if result.hint is None else list(result.hint)}
