"""The command line: parses and prints, nothing else. Each verb is a module, imported when named.

`run` with a cached plan is on everybody's path, so nothing here imports what it may not need.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from ocisbx.errors import EXIT_FAILED, ConfigError, OcisbxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Verb: the module of ocisbx.cli that carries it out, and the line that the help shows.
VERBS: dict[str, tuple[str, str]] = {
    "run": ("run", "run a command in a fresh container, destroyed at the end"),
    "shell": ("shell", "a shell in a fresh container"),
    "create": ("detached", "make a container in the background that waits for `start`"),
    "start": ("containers", "start containers that were created"),
    "wait": ("containers", "wait for a container in the background; ends as it does"),
    "logs": ("logs", "print what a container in the background has printed"),
    "attach": ("attach", "sit down at a container in the background"),
    "exec": ("inside", "run a further command in a container in the background"),
    "cp": ("inside", "copy files into or out of a container in the background"),
    "stop": ("containers", "end containers in the background, gently"),
    "kill": ("containers", "signal containers in the background"),
    "rm": ("containers", "remove containers in the background that have ended"),
    "session": ("session", "start, use, list and end containers that take many commands"),
    "expect": ("expect", "drive a program on a terminal by a script"),
    "transcript": ("transcript", "show what stood on a terminal, and was typed, as text"),
    "pool": ("pool", "keep containers ready for `run --pool`"),
    "bundle": ("bundle", "make, check, run, rerun and compare bundles"),
    "inspect": ("inspect", "show a container's or a bundle's config.json, owner and runtime"),
    "ps": ("ps", "list containers"),
    "stats": ("stats", "show what the containers that run now use"),
    "gc": ("ps", "remove what dead owners left behind"),
    "doctor": ("host", "examine this host; each finding with its remedy"),
    "features": ("host", "what this host and each of its runtimes can do"),
    "bench": ("bench", "measure launchers side by side"),
    "schema": ("host", "print a JSON schema"),
    "version": ("host", "print the version"),
}

USAGE = "usage: ocisbx VERB [OPTIONS] [ARG...]"
REPORT = "this is a bug in ocisbx: report what the same command says with OCISBX_DEBUG=1"
# What the system may be short of at any step, and what the caller can do about it.
SHORTAGES: dict[int, str] = {
    errno.EMFILE: "allow more open files: ulimit -n 256",
    errno.ENFILE: "the system has too many open files: end what holds them",
    errno.ENOMEM: "free some memory",
    errno.EAGAIN: "allow more processes (ulimit -u), or end some",
}
# A shell's status for a program that SIGPIPE ended: 128 + 13.
EXIT_SIGPIPE = 141
EXIT_INTERRUPTED = 130


def main() -> NoReturn:
    """The console script: carry the process's own command line out, and end with its exit code.

    Ends at once: everything was written and closed, and taking the interpreter down costs 5 ms.
    """
    # Imports make no garbage; `run` switches collection on again before the payload starts.
    gc.disable()
    _occupy_closed()
    # A runtime inherits it: runc cannot open the pipe that it made under umask 0777.
    os.umask(0o022)
    os._exit(carry_out(sys.argv[1:]))


def _occupy_closed() -> None:
    """Let no file of ours become descriptor 0, 1 or 2 that the caller closed: it would be taken for
    the caller's. What stands there instead refuses every use, as glibc's does for setuid programs.
    """
    for number, access in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest that is free: those below are open by now.
            os.open(os.devnull, access | os.O_CLOEXEC)


def carry_out(arguments: Sequence[str]) -> int:
    """Carry one command line out; returns the exit code, and never raises."""
    try:
        return _dispatch(list(arguments))
    except OcisbxError as error:
        return _failed(error.render(), error.exit_code)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_SIGPIPE
    except Exception as error:  # noqa: BLE001 -- the last line of defence: no traceback by default
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        remedy = SHORTAGES[error.errno]
        return _failed(f"ocisbx: {error.strerror}\n  remedy: {remedy}", EXIT_FAILED)
    name = type(error).__name__
    return _failed(f"ocisbx: unexpected {name}: {error}\n  remedy: {REPORT}", EXIT_FAILED)


def _dispatch(arguments: list[str]) -> int:
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help", "help"):
        from ocisbx.cli.output import put  # noqa: PLC0415 -- `run` prints by forwarding

        put(_help())
        return 0
    if verb == "--version":
        verb = "version"
    if verb not in VERBS:
        raise _unknown(verb)
    module = import_module(f"ocisbx.cli.{VERBS[verb][0]}")
    verb_main: Callable[[list[str]], int] = getattr(module, f"{verb}_main")
    return verb_main(arguments[1:])


def _help() -> str:
    width = max(map(len, VERBS))
    rows = [f"  {verb:{width}}  {line}" for verb, (_, line) in VERBS.items()]
    return "\n".join([
        USAGE,
        "",
        *rows,
        "",
        "  ocisbx VERB --help    options and examples of one verb",
        "",
        "example (the current directory is all that it can write):",
        "  ocisbx run -- python3 -c 'print(1)'",
        "",
    ])  # fmt: skip


def _unknown(verb: str) -> OcisbxError:
    from ocisbx.values import did_you_mean, show  # noqa: PLC0415 -- for a refusal only

    near = did_you_mean(verb, VERBS)
    return ConfigError(
        f"{show(verb)} is not a verb{near}",
        remedy="ocisbx --help lists them; to run a command: ocisbx run -- COMMAND",
    )


def _failed(text: str, exit_code: int) -> int:
    """Say it on stderr, whatever state that is in; with OCISBX_DEBUG=1 the traceback first."""
    if os.environ.get("OCISBX_DEBUG"):
        import traceback  # noqa: PLC0415 -- for debugging only

        text = traceback.format_exc() + text
    # A path of the caller's may hold escape sequences; the lines of a long message stay.
    text = "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text)
    try:
        os.write(2, (text + "\n").encode(errors="backslashreplace"))
    except OSError:
        return exit_code
    return exit_code
