"""`ocisbx run --pool PATH`: the command in a container of a pool that another process serves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ocisbx.backends.lent import LentExecution
from ocisbx.backends.stdio import PayloadStdio
from ocisbx.calls import Told, Waiting, conclude, turn
from ocisbx.cli.output import inert_json, put, say
from ocisbx.cli.run import EXIT_CANCELLED, Interrupts, extra_environment, make_call, tell
from ocisbx.errors import ConfigError, RuntimeFailed
from ocisbx.outcome import Reason
from ocisbx.pool.lending import borrow
from ocisbx.quantities import parse_seconds
from ocisbx.values import check_command, utc_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocisbx.backends.base import Call
    from ocisbx.pool.lending import Loan

# All others belong to the container, which is there already.
OPTIONS = frozenset(
    {"pool", "env", "env-file", "interactive", "json", "no-audit", "workdir", "workspace"}
    | {"timeout", "grace"}
)


def run_pooled(options: Mapping[str, Any], words: list[str], began: float) -> int:
    """Run it; the exit code is that of `run`."""
    for key in options:
        if key not in OPTIONS:
            raise ConfigError(
                f"--{key} cannot be given together with --pool",
                why="the pool's containers are there already",
                remedy="give it to `ocisbx pool serve`, or leave --pool out",
            )
    argv = check_command(words)
    extra = extra_environment(options)
    workspace = options.get("workspace")
    with Interrupts() as interrupts, borrow(options["pool"], workspace) as loan:
        plan = loan.plan
        if "timeout" in options:
            plan = plan._replace(timeout_s=parse_seconds(options["timeout"]))
        if "grace" in options:
            plan = plan._replace(grace_s=parse_seconds(options["grace"], zero=True))
        plan.commands.check(argv)
        # Where the container started there was no workspace yet.
        own = None if workspace is None else plan.workdir
        call = make_call(options, argv, extra)._replace(workdir=options.get("workdir", own))
        with turn(plan, Waiting(interrupts.pause, say)):
            interrupts.begin()
            started_at = utc_text()
            told = _run(loan._replace(plan=plan), call, interrupts)
    try:
        resolve_s = told.execution.clock.started - began
        result = conclude(told, started_at, resolve_s=resolve_s, audit="no-audit" not in options)
    except RuntimeFailed:
        if interrupts.count:
            return EXIT_CANCELLED
        raise
    if "json" in options:
        put(inert_json(result.to_dict()) + "\n")
    else:
        tell(result, plan)
    return result.shell_exit_code


def _run(loan: Loan, call: Call, interrupts: Interrupts) -> Told:
    execution: LentExecution
    stdio = PayloadStdio(loan.plan, call, loan.bundle, lambda: execution.end_now(Reason.OUTPUT))
    execution = LentExecution(loan.id, loan.plan, call, stdio, loan.cgroup)
    execution.clock.bundle_made = time.monotonic()
    try:
        # The loan's own copy is closed with it.
        if not execution.start_alone(loan.orders.dup()):
            raise RuntimeFailed(
                "the container of the pool ended before it was given the command",
                remedy="run it again; `ocisbx doctor` checks this host",
            )
        interrupts.hold(execution)
        verdict = execution.wait()
        assert verdict is not None
        captured = stdio.finish(keep=False)
    finally:
        execution.close()
    return Told(loan.plan, call, execution, verdict, captured)
