"""`ocisbx transcript`: what was shown and typed on a terminal, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ocisbx.cli.options import JSON, Option, Syntax, parse, wants_help
from ocisbx.cli.output import printable, put, put_json, say
from ocisbx.cli.progress import Progress
from ocisbx.errors import ConfigError
from ocisbx.values import show, utc_text

if TYPE_CHECKING:
    from ocisbx.expect.playback import Playback

TRANSCRIPT = Syntax(
    "ocisbx transcript [--typed|--json] FILE",
    "Show a transcript (`run -t --transcript FILE`) as plain text: all that a person\n"
    "could read on the terminal, without what steers one. `asciinema play FILE` shows\n"
    "it as it was.",
    (
        Option(("--typed",), "flag", "", "what was typed, and when, instead of what was shown"),
        JSON,
    ),
    ("ocisbx transcript build.cast", "ocisbx transcript --typed build.cast"),
)
HIDDEN = "[hidden]"


def transcript_main(arguments: list[str]) -> int:
    """Show one."""
    parsed = parse(TRANSCRIPT, arguments)
    if wants_help(TRANSCRIPT, parsed):
        return 0
    if {"typed", "json"} <= parsed.options.keys():
        raise ConfigError("--json tells what was typed, too", remedy="ask for one of them")
    if len(parsed.words) != 1:
        raise ConfigError("one FILE expected", remedy=f"usage: {TRANSCRIPT.usage}")
    played = _play(parsed.words[0])
    if "json" in parsed.options:
        put_json(_document(played))
    elif "typed" in parsed.options:
        for at_s, text in played.typed:
            put(f"{at_s:12.3f}  {HIDDEN if text is None else printable(text)}\n")
    else:
        put(played.text)
        if played.text_truncated:
            say("ocisbx: the text begins later: it is far longer than what was shown")
    return 0


def _play(path: str) -> Playback:
    # pyte and wcwidth, for those who look at a screen.
    from ocisbx.expect.playback import play  # noqa: PLC0415 -- see above

    name = show(path).strip("'")
    try:
        with Progress() as progress, open(path, "rb") as file:
            progress.tell(f"drawing {name}")
            return play(file, name)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read", why=error.strerror or "") from None


def _document(played: Playback) -> dict[str, Any]:
    started = None if played.started_at_s is None else utc_text(played.started_at_s)
    return {
        "rows": played.rows,
        "columns": played.columns,
        "started_at": started,
        "duration_s": played.duration_s,
        "text": played.text,
        "text_truncated": played.text_truncated,
        "typed": [{"at_s": at_s, "text": text} for at_s, text in played.typed],
    }
