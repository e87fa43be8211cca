"""`ocisbx shell`: a shell in a fresh container."""

from __future__ import annotations

import os

from ocisbx.cli.options import Syntax, parse, wants_help
from ocisbx.cli.run import STDIN, run_main
from ocisbx.cli.run_options import CALL, CONTAINER
from ocisbx.errors import ConfigError
from ocisbx.values import show

# What only makes sense of a command that is named, or of the foreground.
_LEFT_OUT = ("interactive", "detach", "json", "dry-run", "host")
SHELL = Syntax(
    "ocisbx shell [RUN OPTIONS]",
    "",
    (*CONTAINER, *(o for o in CALL if o.key not in _LEFT_OUT)),
    page="""\
usage: ocisbx shell [RUN OPTIONS]

A shell in a fresh container, destroyed when it ends. Where its input is a
terminal it has one of its own, with job control and full-screen programs:
Ctrl-D ends it. Else it reads what comes.

  RUN OPTIONS  those of `ocisbx run` (ocisbx run --help) but -i, -d, --json,
               --dry-run and --host

examples:
  ocisbx shell
  ocisbx shell --network host -v /opt/go:ro
  echo 'id; ls /' | ocisbx shell
""",
)


def shell_main(arguments: list[str]) -> int:
    """Run it; its exit code."""
    parsed = parse(SHELL, arguments)
    if wants_help(SHELL, parsed):
        return 0
    if parsed.words:
        raise ConfigError(
            f"{show(parsed.words[0])} is one word too many", remedy="ocisbx run -- COMMAND"
        )
    # Containers of a pool have none.
    terminal = ["-t"] if os.isatty(STDIN) and "pool" not in parsed.options else []
    return run_main(["-i", *terminal, *arguments, "--", "/bin/sh"])
