"""A runtime on its way: as far as it gets without its bundle, and then started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.command import Child

# Where the cell waits (ocisbx-init(7), "The cell"): above stdio, the init's socket, a sealed copy.
GATE_FD = 5


class Starting:
    """What `RuntimeClient.begin_run` has begun. Its descriptors have to stay open until `go`."""

    def __init__(self, spawn: Callable[[int | None], Child], *, ahead: bool) -> None:
        """`spawn` starts the program, with the read end of a pipe where it is to wait for a byte
        of that, and ends without one; `ahead`: it can. Raises what `spawn` raises."""
        self._spawn = spawn
        self._child: Child | None = None
        # Both ends: to write where nobody reads any more would be SIGPIPE.
        self._pipe: tuple[int, ...] = ()
        if ahead:
            self._pipe = os.pipe()
            try:
                self._child = spawn(self._pipe[0])
            except BaseException:
                self._close()
                raise

    def go(self) -> Child:
        """The runtime's process, which is the caller's from now on. Raises what `spawn` raises."""
        child, self._child = self._child, None
        if child is None:
            return self._spawn(None)
        os.write(self._pipe[1], b"x")
        self._close()
        return child

    def abandon(self) -> None:
        """Without `go`: nothing has been started, and nothing is left. Idempotent."""
        child, self._child = self._child, None
        self._close()
        if child is not None:
            child.kill()
            child.wait()
            child.close()

    def _close(self) -> None:
        for end in self._pipe:
            os.close(end)
        self._pipe = ()
