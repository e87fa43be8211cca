"""What is made for a session's next command: handed out once, and never in the way."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import threading
from typing import TYPE_CHECKING

import pytest

from ocisbx.backends.ahead import PIPES, Ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_ONE = 2 * PIPES + 2


def count() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def ahead() -> Iterator[Ahead]:
    made, before = Ahead(), count()
    yield made
    made.close()
    assert count() == before


def test_it_is_made_once_and_handed_out_once(ahead: Ahead) -> None:
    before = count()
    ahead.make()
    ahead.make()
    assert count() == before + OF_ONE
    given = [end for _ in range(PIPES + 1) for end in ahead.pipe()]
    channels = [ahead.channel(), ahead.channel()]
    assert len(set(given)) == 2 * PIPES + 2
    assert len({end.fileno() for pair in channels for end in pair}) == 4
    assert count() == before + len(given) + 4
    for descriptor in given:
        os.close(descriptor)
    for pair in channels:
        for end in pair:
            end.close()


def test_after_its_end_nothing_is_kept(ahead: Ahead) -> None:
    before = count()
    ahead.make()
    ahead.close()
    ahead.make()
    assert count() == before
    forgotten = Ahead()
    forgotten.make()
    del forgotten
    assert count() == before


def is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def test_a_fork_has_none_of_it(ahead: Ahead) -> None:
    ahead.make()
    made = [end for pair in ahead._pipes for end in pair]
    made += [end.fileno() for pair in ahead._channels for end in pair]
    assert len(made) == OF_ONE
    child = os.fork()
    if child == 0:
        # The pipes of both would be the same.
        os._exit(all(map(is_closed, made)) and not ahead._pipes and not ahead._channels)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not any(map(is_closed, made))


@pytest.mark.parametrize("room", [0, 1, 3, OF_ONE - 1, OF_ONE, 2 * OF_ONE])
def test_where_descriptors_are_few_nothing_is_kept(room: int, ahead: Ahead) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        # Those below are taken, then.
        while (descriptor := os.dup(2)) <= highest:
            stack.callback(os.close, descriptor)
        os.close(descriptor)
        before = count()
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor + room, hard))
        try:
            ahead.make()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert count() == before


def test_threads_do_not_share(ahead: Ahead) -> None:
    given: list[int] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        for _ in range(50):
            ahead.make()
            given.extend(ahead.pipe())

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 8 * 50 * 2
    for descriptor in given:
        os.close(descriptor)
