"""`ocisbx session new|run|ls|rm`: containers that take many commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.bundle.record import read_records
from ocisbx.cli.containers import each, find
from ocisbx.cli.inside import FURTHER, carry_out
from ocisbx.cli.notes import notes, unsaid
from ocisbx.cli.options import JSON, Option, Parsed, Syntax, parse, refuse_words, wants_help
from ocisbx.cli.output import put, put_json, put_table, say
from ocisbx.cli.prepare import build_config
from ocisbx.cli.ps import background_row
from ocisbx.cli.run import Interrupts, extra_environment
from ocisbx.cli.run_options import CALL, CONTAINER
from ocisbx.errors import ConfigError
from ocisbx.quantities import parse_seconds
from ocisbx.session.session import Session, remove
from ocisbx.values import check_command, did_you_mean, show

if TYPE_CHECKING:
    from ocisbx.background.container import Container

_OWN = (
    Option(("--idle",), "one", "SECONDS", ""),
    Option(("--lifetime",), "one", "SECONDS", ""),
    Option(("--worktree",), "one", "DIR", ""),
)
_SHARED = tuple(o for o in CALL if o.key in ("env", "env-file", "name", "json", "no-audit"))
NEW = Syntax(
    "ocisbx session new [OPTIONS] [RUN OPTIONS]",
    "",
    (*_OWN, *_SHARED, *CONTAINER),
    page="""\
usage: ocisbx session new [OPTIONS] [RUN OPTIONS]

Start a container that takes many commands, and print its id. It stays, whoever
started it, until `ocisbx session rm`, or one of its limits.

  --name NAME         by which the other verbs find it
  --idle SECONDS      ends it when no command ran for so long
  --lifetime SECONDS  ends it so long after its start
  --worktree DIR      its workspace is a git worktree of the repository DIR;
                      what is committed stays on a branch ocisbx/..., the
                      rest goes
  -e, --env-file      variables of all its commands
  --timeout SECONDS   of each command
  --json              print {"id": ..., "name": ...}
  RUN OPTIONS         those of `ocisbx run` (ocisbx run --help) that shape a
                      container

examples:
  ocisbx session new --name work --idle 3600
  ocisbx session run work -- make test
  ocisbx session rm work
""",
)
RUN = Syntax(
    "ocisbx session run [OPTIONS] ID|NAME [--] COMMAND [ARG...]",
    "Run a command in a session, beside whatever else runs there; exit codes as\n`run`. "
    "What it leaves running stays, unless it is ended: then all of it is.",
    FURTHER,
    ("ocisbx session run work -- make test", "ocisbx session run -it work -- bash"),
    command=True,
)
LS = Syntax(
    "ocisbx session ls [--json]",
    "List your sessions, ended ones that were not removed too.",
    (JSON,),
    ("ocisbx session ls",),
)
RM = Syntax(
    "ocisbx session rm ID|NAME...",
    "End sessions, with all that runs in them, their children and worktrees.",
    (),
    ("ocisbx session rm work",),
)
COLUMNS = ("id", "name", "state", "runtime", "created_at", "workdir", "parent")
ABOUT = """\
usage: ocisbx session new|run|ls|rm [OPTIONS] [ARG...]

  new [RUN OPTIONS]            start a container that takes many commands
  run ID|NAME -- COMMAND       run one of them
  ls                           list sessions
  rm ID|NAME...                end them

  ocisbx session VERB --help   options and examples of one verb

examples:
  ocisbx session new --name work --idle 3600
  ocisbx session run work -- make test
"""


def session_main(arguments: list[str]) -> int:
    """Carry out one of its verbs."""
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help"):
        put(ABOUT)
        return 0
    if verb not in VERBS:
        near = did_you_mean(verb, VERBS)
        raise ConfigError(
            f"{show(verb)} is not a verb of session{near}", remedy="ocisbx session --help"
        )
    syntax, act = VERBS[verb]
    parsed = parse(syntax, arguments[1:])
    return 0 if wants_help(syntax, parsed) else act(parsed.options, parsed.words)


def _new(options: dict[str, Any], words: list[str]) -> int:
    if words:
        raise ConfigError(
            f"{show(words[0])} is one word too many",
            why="a session is started without a command",
            remedy="ocisbx session run NAME -- COMMAND",
        )
    if "worktree" in options and "workspace" in options:
        raise ConfigError("--worktree is the workspace", remedy="leave --workspace out")
    config = build_config(options)
    if variables := extra_environment(options):
        config = config.updated({"env.set": {**config.env.set, **variables}})
    limits = {key: parse_seconds(options[key]) for key in ("idle", "lifetime") if key in options}
    with Interrupts():
        session = Session(
            config,
            name=options.get("name"),
            keep=True,
            idle_s=limits.get("idle"),
            lifetime_s=limits.get("lifetime"),
            worktree=options.get("worktree"),
            audit="no-audit" not in options,
        )
        with session:
            if "json" in options:
                put_json({"id": session.id, "name": session.name})
                return 0
            for note in unsaid(notes(session.plan)):
                say(note)
            put(f"{session.id}\n")
    return 0


def _run(options: dict[str, Any], words: list[str]) -> int:
    if len(words) < 2:
        raise ConfigError("an ID or NAME and a command expected", remedy=f"usage: {RUN.usage}")
    given, *command = words
    if command[0] == "--":
        del command[0]
    return carry_out(_session(given), options, check_command(command))


def _ls(options: dict[str, Any], words: list[str]) -> int:
    refuse_words(LS, Parsed(options, words))
    records = [record for record in read_records() if record.is_session]
    rows = [
        {key: row[key] for key in COLUMNS}
        for record in records
        if (row := background_row(record)) is not None
    ]
    if "json" in options:
        put_json(rows)
    else:
        put_table(COLUMNS, rows)
    return 0


def _rm(_: dict[str, Any], words: list[str]) -> int:
    return each(RM, Parsed({}, words), lambda container: remove(_checked(container)))


def _session(given: str) -> Container:
    return _checked(find(given))


def _checked(container: Container) -> Container:
    if not container.record.is_session:
        raise ConfigError(
            f"{container.name or container.id} is not a session",
            why="it has a command of its own",
            remedy="ocisbx exec runs further ones in it, ocisbx rm removes it",
        )
    return container


VERBS = {"new": (NEW, _new), "run": (RUN, _run), "ls": (LS, _ls), "rm": (RM, _rm)}
