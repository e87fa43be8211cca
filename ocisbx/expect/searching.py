"""pexpect's matcher on a long output: searched once and not again with every piece that comes.

pexpect looks for a regex in all that came since the last match, each time: a flood of n bytes costs
n squared. Here what no match can begin in any more is dropped from the window that is searched.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pexpect import EOF, TIMEOUT
from pexpect.expect import Expecter, searcher_re

from ocisbx.expect.waiting import is_over, left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ocisbx.expect.patterns import Pattern
    from ocisbx.expect.spawn import Spawn

    # Generic in the stubs only.
    _Searcher = searcher_re[Any]
    _Expecter = Expecter[Any]
else:
    _Searcher = searcher_re
    _Expecter = Expecter

# The end of the window is searched again whatever `regex` says about partial matches: \B at its end
# is one that it denies and more output makes.
ALWAYS_CHARACTERS = 4096
# What stands before the place from which is searched, for lookbehinds, \b and ^.
CONTEXT_CHARACTERS = 256


class Searcher(_Searcher):
    """searcher_re that remembers where, in the window that it is given, a match may yet begin."""

    def __init__(self, patterns: Sequence[Any]) -> None:
        super().__init__(patterns)
        self._patterns: list[tuple[int, Pattern]] = [
            (index, pattern)
            for index, pattern in enumerate(patterns)
            if pattern not in (EOF, TIMEOUT)
        ]
        self._begins = [0] * len(self._patterns)
        self.keep = 0
        """From where on the window is needed for the next search."""

    def search(self, buffer: Any, freshlen: int, searchwindowsize: int | None = None) -> int:  # noqa: ANN401 -- str or bytes
        """The index of the pattern that matches first, or -1. Raises ConfigError: too slow."""
        if searchwindowsize is not None:
            found: int = super().search(buffer, freshlen, searchwindowsize)
            return found
        best, self.start = -1, len(buffer) + 1
        for (index, pattern), begin in zip(self._patterns, self._begins, strict=True):
            match = pattern.search(buffer, begin)
            if match is not None and match.start() < self.start:
                best, self.match = index, match
                self.start, self.end = match.span()
        if best < 0:
            self._look_ahead(buffer)
        return best

    def _look_ahead(self, buffer: Any) -> None:  # noqa: ANN401 -- str or bytes
        sure = len(buffer) - ALWAYS_CHARACTERS
        if sure <= 0:
            return
        self._begins = [
            max(begin, min(sure, pattern.may_begin(buffer, begin)))
            for (_, pattern), begin in zip(self._patterns, self._begins, strict=True)
        ]
        self.keep = max(0, min(self._begins, default=len(buffer)) - CONTEXT_CHARACTERS)

    def dropped(self, count: int) -> None:
        """The first `count` characters of the window are gone."""
        self._begins = [max(0, begin - count) for begin in self._begins]
        self.keep = 0


class BoundedExpecter(_Expecter):
    """Expecter with a window that is cut, a bound on what is kept, and a clock that never jumps."""

    if TYPE_CHECKING:
        spawn: Spawn  # type: ignore[mutable-override]

    def do_search(self, window: Any, freshlen: int) -> int | None:  # type: ignore[override]  # noqa: ANN401 -- the stubs have no None; str or bytes
        spawn, unread = self.spawn, self.spawn._before  # noqa: SLF001 -- as pexpect's Expecter
        index: int | None = super().do_search(window, freshlen)
        if index is None:
            self._cut(window)
        elif self.searcher.start == len(window):
            # pexpect's slice [0:-0] is empty: nothing stood behind the match, so all is before it.
            spawn.before = unread.getvalue()
        if index is not None:
            spawn.before_truncated, spawn.dropped = spawn.dropped, False
        return index

    def _cut(self, window: Any) -> None:  # noqa: ANN401 -- str or bytes
        spawn, searcher, keep = self.spawn, self.searcher, 0
        kept = spawn.max_before // 2
        if spawn.unread > spawn.max_before:
            spawn.drop_before(kept)
            keep = max(0, len(window) - kept)
        if self.searchwindowsize:
            return
        if isinstance(searcher, Searcher):
            keep = max(keep, searcher.keep)
            searcher.dropped(keep)
        elif not self.lookback:
            keep = len(window)
        else:
            return
        if keep:
            spawn.replace_window(window[keep:])

    def expect_loop(self, timeout: float | None = -1) -> int:
        """The index of what matched. Raises pexpect's EOF and TIMEOUT, ConfigError, OSError."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            index: int | None = self.existing_data()
            while index is None:
                text = self.spawn.read_nonblocking(self.spawn.maxread, left(until))
                if self.spawn.delayafterread is not None:
                    time.sleep(self.spawn.delayafterread)
                index = self.new_data(text)
                if index is None and is_over(until):
                    return self.timeout()
        except BaseException as error:  # noqa: BLE001 -- raised again, but for two
            return self._over(error)
        return index

    async def expect_async(self, timeout: float | None) -> int:
        """The same, while other tasks of the event loop go on; what it raises is the same too."""
        until = None if timeout is None else time.monotonic() + timeout
        spawn = self.spawn
        try:
            index: int | None = self.existing_data()
            while index is None:
                await spawn.await_input(left(until))
                index = self.new_data(spawn.read_nonblocking(spawn.maxread, 0))
                if index is None and is_over(until):
                    return self.timeout()
        except BaseException as error:  # noqa: BLE001 -- as above
            return self._over(error)
        return index

    def eof(self, err: object = None) -> int:
        """As pexpect's."""
        spawn = self.spawn
        spawn.before_truncated, spawn.dropped = spawn.dropped, False
        return super().eof(err)

    def timeout(self, err: object = None) -> int:
        """As pexpect's."""
        self.spawn.before_truncated = self.spawn.dropped
        return super().timeout(err)

    def _over(self, error: BaseException) -> int:
        """The index of the end or of the time, where one of the patterns is that."""
        if isinstance(error, EOF):
            return self.eof(error)
        if isinstance(error, TIMEOUT):
            return self.timeout(error)
        self.errored()
        raise error
