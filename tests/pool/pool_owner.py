"""An owner of a pool, for the tests of its death: RUNTIME WORKSPACE SIZE WHAT MARK.

It says `ready` when so many wait. WHAT: `wait` for ever; `busy`, with a call that sleeps MARK
seconds; `end` without closing the pool; `fork`, with a child that outlives it.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import ocisbx


def main(runtime: str, workspace: str, size: str, what: str, mark: str) -> None:
    pool = ocisbx.Pool(None, int(size), runtime={"names": [runtime]}, workspace=workspace)
    pool.open()
    while pool.counts.waiting < int(size):
        time.sleep(0.01)
    if what == "busy":
        started = threading.Event()
        command = ["sh", "-c", "echo; exec sleep $0", mark]
        call = {"on_stdout": lambda _data: started.set()}
        threading.Thread(target=pool.run, args=(command,), kwargs=call, daemon=True).start()
        started.wait()
    if what == "fork" and os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if what != "end":
        time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
