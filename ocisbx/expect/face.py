"""A program on a terminal: looking at what is there, which waits for nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ocisbx.errors import TerminalError
from ocisbx.expect.hidden import Hidden
from ocisbx.expect.sought import OnScreen, several, without_secrets
from ocisbx.expect.spawn import Spawn
from ocisbx.terminal.device import DEFAULT_SIZE, get_modes, get_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.expect.ends import RawTerminal
    from ocisbx.expect.screen import Canvas, View
    from ocisbx.terminal.device import Modes, Size


class Face:
    """What both twins share: looking at what is there."""

    def __init__(
        self,
        terminal: int | RawTerminal,
        *,
        encoding: str | None = "utf-8",
    ) -> None:
        """A program at the other end of `terminal`; without `encoding` all is bytes."""
        self.spawn = Spawn(terminal, encoding=encoding)
        self.hidden = Hidden(self.spawn.terminal.conceal)
        # What an author wrote in a script is no secret, though it looks like one of its secrets.
        self.typed = Hidden()
        self._sought: OnScreen | None = None
        self._canvas: Canvas | None = None
        self._last_size = DEFAULT_SIZE
        self.note_size()

    def _hide(self, text: str | bytes, *, secret: bool) -> bool:
        """Whether nothing may be told of it when it is typed."""
        if secret:
            self.hidden.add(text)
            self.typed.add(text)
        return secret or self.hidden.stands_in(text)

    def _line(self, text: str | bytes) -> Any:  # noqa: ANN401 -- str or bytes
        return self.spawn._coerce_send_string(text) + self.spawn.linesep  # noqa: SLF001 -- as pexpect's

    # ------------------------------------------------------------------------ the terminal
    def fileno(self) -> int:
        """Readable when there is something to read, its end too. Raises TerminalError: it is
        closed."""
        return self.spawn.terminal.fileno()

    @property
    def echo(self) -> bool:
        """Whether what is typed is shown. Raises TerminalError."""
        return self.modes().echo

    @property
    def hides_input(self) -> bool:
        """Whether a line is read and not shown, as for a password. Raises TerminalError."""
        return self.modes().hides_input

    def modes(self) -> Modes:
        """As the program has set them. Raises TerminalError."""
        return get_modes(self.fileno())

    @property
    def size(self) -> Size:
        """Rows and columns. Raises TerminalError."""
        return get_size(self.fileno())

    def resize(self, rows: int, columns: int) -> None:
        """The foreground gets SIGWINCH.

        Raises:
            ConfigError: no terminal has that size.
            TerminalError: it is closed.
        """
        self.spawn.terminal.resize(rows, columns)

    def note_size(self) -> Size:
        """The terminal's, for a look at what it showed when it is closed; the last one then."""
        with suppress(TerminalError):
            self._last_size = self.size
        return self._last_size

    def signal(self, number: int) -> None:
        """Signal the program; of a bare descriptor the group in the foreground."""
        self.spawn.terminal.signal(number)

    # ------------------------------------------------------------------------ what came
    @property
    def before(self) -> Any:  # noqa: ANN401 -- str or bytes, as the encoding says
        """What came before the last match; after an error all that came."""
        return self.spawn.before

    @property
    def after(self) -> Any:  # noqa: ANN401 -- str or bytes, EOF or TIMEOUT
        """What the last match covers."""
        return self.spawn.after

    @property
    def match(self) -> Any:  # noqa: ANN401 -- a match, a text (expect_exact), EOF or TIMEOUT
        """The last match, with its groups."""
        return self.spawn.match

    @property
    def before_truncated(self) -> bool:
        """Whether `before`, or what was read last, lacks its beginning: more came than is kept."""
        return self.spawn.before_truncated

    @property
    def screen_match(self) -> Any:  # noqa: ANN401 -- a match, EOF or TIMEOUT
        """The last match of expect_screen."""
        return None if self._sought is None else self._sought.match

    def read_some(self) -> Any:  # noqa: ANN401 -- str or bytes
        """What came and was not looked for; None: nothing now; empty: the end. Never waits.

        Raises TerminalError: the terminal was closed.
        """
        if not self.spawn.unread:
            self.spawn.absorb()
        if not self.spawn.unread and not self.spawn.flag_eof:
            # Half a character may have come.
            return None
        return self.spawn.take(self.spawn.unread)

    @property
    def buffer(self) -> Any:  # noqa: ANN401 -- str or bytes
        """What came since, and the next expect looks at first."""
        return self.spawn.buffer

    def screen(self, *, colours: bool = False) -> View:
        """What a person would see now, drawn from the last MiB of the output; of a terminal that is
        huge, a part."""
        self.spawn.absorb()
        return self._draw().view(colours=colours)

    def _draw(self) -> Canvas:
        from ocisbx.expect.screen import (  # noqa: PLC0415 -- pyte, for who looks at the screen
            Canvas,
            last_bytes,
        )

        rows, columns = self.note_size()
        # Nobody has set them.
        rows, columns = rows or DEFAULT_SIZE.rows, columns or DEFAULT_SIZE.columns
        if self._canvas is None:
            self._canvas = Canvas(rows, columns)
        canvas, spawn = self._canvas, self.spawn
        canvas.resize(rows, columns)
        missing = spawn.total_bytes - canvas.fed_bytes
        data = last_bytes(spawn.tail, missing)
        if len(data) < missing:
            canvas.restart()
            canvas.fed_bytes += missing - len(data)
        canvas.feed(data)
        return canvas

    # ------------------------------------------------------------------------ for both twins
    def _patterns(self, patterns: Any) -> list[Any]:  # noqa: ANN401 -- one or several
        with without_secrets(self.typed):
            return self.spawn.compile_pattern_list(several(patterns))

    def _look_for(self, patterns: Any) -> tuple[OnScreen, Callable[[], int | None]]:  # noqa: ANN401 -- as above
        with without_secrets(self.typed):
            self._sought = sought = OnScreen(patterns)
        return sought, lambda: sought.find(self._draw().view().text)

    def _enough(self, size: int) -> Callable[[], bool | None]:
        spawn = self.spawn
        spawn.check_count(size)
        return lambda: True if spawn.flag_eof or (size >= 0 and spawn.unread >= size) else None
