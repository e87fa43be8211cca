"""`tools/vm`: commands in a real machine with systemd and cgroup v2, emulated by QEMU."""

import argparse
import os
import sys
from pathlib import Path

from tools import vm_cache
from tools.rootfs_recipe import BuildError
from tools.vm_build import plan, ready
from tools.vm_machine import restored
from tools.vm_recipe import GUESTS, USER
from tools.vm_session import Command, Session

_RESTORE_LIMIT_S = 60
_VERBS = ("run", "status", "build", "clean")
_CONTEXTS = ("scope", "session", "plain", "login")
_EPILOG = f"""\
contexts (-s):
  scope    systemd-run --user --scope -p Delegate=yes, as {USER}; for root one of the system's
  session  a login over ssh, in the guest, to localhost
  login    a logind session without ssh (PAMName=login)
  plain    a service of the system

The guest: {USER} (subordinate ids, linger on, sudo without password, ~/.ssh/id_ed25519 for ssh to
{USER} and root at localhost), user@.service delegates cpu cpuset io memory pids by a drop-in,
psi=1, cron, no network but lo. Debian's runc, crun, runsc stand in its PATH or /usr/sbin, our
builds in /opt/runtimes/bin and where .runtimes/bin of a copied tree points. Python has the tests'
packages; `ocisbx` is /home/{USER}/ocisbx, when -p puts a tree there. Each run starts from the same
frozen state, and its changes are lost.

Files that the command writes under $OUT arrive in the caller's $OUT, else ./vm-out. Its stdin is
ours, unless that is a terminal. The exit code is the command's (128 + N for signal N); 69 when this
machine lacks something (the administrator's command is printed), 125 when the machine failed.
"""


def main(arguments: list[str]) -> int:
    """Do what the command line asks for; return the exit code."""
    verb = arguments[0] if arguments and arguments[0] in _VERBS else "run"
    options = _parser().parse_args(arguments if arguments[:1] == [verb] else [verb, *arguments])
    try:
        return {"run": _run, "status": _status, "build": _build, "clean": _clean}[verb](options)
    except BuildError as error:
        _say(error.what)
        if error.why:
            print(f"  {error.why}", file=sys.stderr)
        if error.remedy:
            print(f"  remedy: {error.remedy}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        _say(str(error))
        return 125


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/vm",
        description=__doc__,
        epilog="tools/vm [OPTIONS] -- CMD is short for `tools/vm run`; see tools/vm run --help",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="run|status|build|clean")
    run = verbs.add_parser(
        "run",
        description="Run a command in the guest.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "-g", dest="guest", default="bookworm", choices=GUESTS, help="default: bookworm"
    )
    run.add_argument("-u", dest="user", default=USER, metavar="USER", help=f"default: {USER}")
    run.add_argument(
        "-s", dest="context", default="scope", choices=_CONTEXTS, help="default: scope"
    )
    run.add_argument(
        "-p",
        dest="put",
        action="append",
        default=[],
        metavar="HOST:GUEST",
        help="copy a directory's content, or a file, in; the first is the working directory",
    )
    run.add_argument(
        "-c", dest="console", default="", metavar="FILE", help="write the guest's console to FILE"
    )
    run.add_argument("command", nargs="+", metavar="CMD")
    verbs.add_parser("status", help="what the cache has")
    for name, text in (("build", "build the guests"), ("clean", "empty the cache")):
        verb = verbs.add_parser(name, help=text)
        if name == "build":
            verb.add_argument("-g", dest="guest", choices=GUESTS, help="one guest only")
    return parser


def _run(options: argparse.Namespace) -> int:
    puts = [_put(text) for text in options.put]
    directory = next((target for source, target in puts if source.is_dir()), "")
    home = "/root" if options.user == "root" else f"/home/{options.user}"
    out = f"{home}/out"
    console = os.path.abspath(options.console) if options.console else ""
    command = Command(
        options.command, options.user, options.context, directory or home, {"OUT": out}
    )
    with (
        ready(GUESTS[options.guest], _say) as place,
        restored(place, console) as machine,
    ):
        session = Session(machine.line, machine.what_happened)
        session.hello(_RESTORE_LIMIT_S)
        for source, target in puts:
            session.put(source, target, options.user)
        code = session.run(command, stdin=not _is_terminal())
        session.get(out, Path(os.environ.get("OUT") or "vm-out"))
    return code


def _put(text: str) -> tuple[Path, str]:
    source, colon, target = text.rpartition(":")
    if not (source and colon and target.startswith("/") and Path(source).exists()):
        what = f"-p {text}: not HOST:GUEST, an existing path and an absolute one"
        raise BuildError(what)
    return Path(source), os.path.normpath(target)


def _is_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return True


def _status(_options: argparse.Namespace) -> int:
    cache = vm_cache.directory()
    sizes = vm_cache.sizes(cache)
    for suite, guest in GUESTS.items():
        made = plan(guest)
        state = "ready" if made.place.exists() else "to be built"
        print(f"{suite}: {state} ({made.place.name})")
    for name, size_bytes in sizes.items():
        print(f"  {size_bytes / 1e6:7.0f} MB  {cache / name}")
    return 0


def _build(options: argparse.Namespace) -> int:
    for suite in [options.guest] if options.guest else GUESTS:
        with ready(GUESTS[suite], _say) as place:
            print(f"{suite}: {place}")
    return 0


def _clean(_options: argparse.Namespace) -> int:
    cache = vm_cache.directory()
    with vm_cache.building(cache, "waiting for a build", _say):
        for name in vm_cache.sizes(cache):
            if not vm_cache.remove_unused(cache / name):
                _say(f"{name} is in use, and stays")
    return 0


def _say(text: str) -> None:
    print(f"vm: {text}", file=sys.stderr, flush=True)
