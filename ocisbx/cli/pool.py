"""`ocisbx pool serve`: containers that are ready, for `ocisbx run --pool`."""

from __future__ import annotations

from ocisbx.cli.options import Option, Syntax, parse, refuse_words, wants_help
from ocisbx.cli.output import put, say
from ocisbx.cli.run import Interrupts
from ocisbx.cli.run_options import CONTAINER
from ocisbx.errors import ConfigError
from ocisbx.values import show

SERVE = Syntax(
    "ocisbx pool serve --socket PATH [--size N|LEAST-MOST] [RUN OPTIONS]",
    "",
    (
        Option(("--socket",), "one", "PATH", ""),
        Option(("--size",), "one", "N|LEAST-MOST", ""),
        *CONTAINER,
    ),
    page="""\
usage: ocisbx pool serve --socket PATH [--size N|LEAST-MOST] [RUN OPTIONS]

Keep containers ready, each for one `ocisbx run --pool PATH`, until SIGINT or
SIGTERM. The socket is for your own user only.

  --socket PATH        where; a socket that nobody serves any more is replaced
  --size N             how many wait (8); LEAST-MOST: as many as are needed
  --workspace per-call each `run --pool` names its own: --workspace DIR[:ro]
  RUN OPTIONS          those of `ocisbx run` that make the container: what it
                       sees, its limits, its runtime (ocisbx run --help)

examples:
  ocisbx pool serve --socket /tmp/pool --size 4 --preset locked-down
  ocisbx run --pool /tmp/pool -- make test
""",
)


def pool_main(arguments: list[str]) -> int:
    """Serve a pool until a signal ends it."""
    if arguments[:1] in (["-h"], ["--help"]):
        put(SERVE.page)
        return 0
    if arguments[:1] != ["serve"]:
        given = show(arguments[0]) if arguments else "nothing"
        raise ConfigError(f"pool: {given} is none of its verbs", remedy=f"usage: {SERVE.usage}")
    parsed = parse(SERVE, arguments[1:])
    if wants_help(SERVE, parsed):
        return 0
    refuse_words(SERVE, parsed)
    options = parsed.options
    if "socket" not in options:
        raise ConfigError("pool serve needs a place", remedy="--socket PATH")
    from ocisbx.cli.prepare import build_config  # noqa: PLC0415 -- needs the models
    from ocisbx.pool.pool import Pool  # noqa: PLC0415 -- threads, for pools only
    from ocisbx.pool.server import Server  # noqa: PLC0415 -- as above

    with Interrupts():
        try:
            with (
                Pool(build_config(options), _size(options.get("size", "8"))) as pool,
                Server(pool, options["socket"]) as server,
            ):
                say(f"ocisbx: containers are ready at {show(options['socket'])}")
                server.serve()
        except KeyboardInterrupt:
            return 0
    return 0


def _size(text: str) -> int | tuple[int, int]:
    numbers = text.split("-")
    if len(numbers) > 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError(
            f"--size: {show(text)} is no number of containers", remedy="--size 8, or --size 2-16"
        )
    sizes = [int(number[:9]) for number in numbers]
    return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])
