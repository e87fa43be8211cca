"""Threads, processes of every start method, and what they share; prints what came out."""

import asyncio
import hashlib
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from multiprocessing.managers import SharedMemoryManager
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Lock, Semaphore

PROCESSES = 4

Context = ForkContext | SpawnContext | ForkServerContext
CONTEXTS: dict[str, Context] = {
    "fork": multiprocessing.get_context("fork"),
    "spawn": multiprocessing.get_context("spawn"),
    "forkserver": multiprocessing.get_context("forkserver"),
}


def digest(number: int) -> str:
    return hashlib.sha256(str(number).encode() * 1000).hexdigest()


def add(name: str, lock: Lock, gate: Semaphore) -> None:
    """Counts in shared memory, at most two at a time."""
    memory = SharedMemory(name)
    assert memory.buf is not None
    for _ in range(100):
        with gate, lock:
            memory.buf[:4] = (int.from_bytes(memory.buf[:4], "big") + 1).to_bytes(4, "big")
    memory.close()


def shared_count(context: Context) -> int:
    """What PROCESSES processes counted up to."""
    lock, gate = context.Lock(), context.Semaphore(2)
    with SharedMemoryManager(ctx=context) as manager:
        memory = manager.SharedMemory(4)
        processes = [
            context.Process(target=add, args=(memory.name, lock, gate)) for _ in range(PROCESSES)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert memory.buf is not None
        return int.from_bytes(memory.buf[:4], "big")


def managed(context: Context) -> int:
    """A dictionary of a manager's, filled by a pool through its socket."""
    with context.Manager() as manager, ProcessPoolExecutor(PROCESSES, context) as pool:
        squares = manager.dict()
        list(pool.map(squares.__setitem__, range(20), [number**2 for number in range(20)]))
        return sum(squares.values())


async def children() -> list[str]:
    """Programs started side by side from an event loop, which waits for them by pidfd."""
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"print({number})", stdout=asyncio.subprocess.PIPE
        )
        for number in range(3)
    ]
    return [(await process.communicate())[0].decode().strip() for process in started]


def main() -> None:
    expected = [digest(number) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(digest, range(200))) == expected
    counts, sums = {}, {}
    for method, context in CONTEXTS.items():
        with context.Pool(PROCESSES) as pool:
            assert pool.map(digest, range(200)) == expected
        counts[method] = shared_count(context)
        sums[method] = managed(context)
    print(
        json.dumps(
            {
                "counts": counts,
                "sums": sums,
                "children": asyncio.run(children()),
                "processors": len(os.sched_getaffinity(0)),
            }
        )
    )


if __name__ == "__main__":
    main()
