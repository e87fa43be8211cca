"""No two calls of a pool share anything: `pool_soak.py [CALLS] [THREADS]`, 10,000 and 4.

Prints one line of JSON: how many calls, how many different containers (pid namespace and start of
process 1), how many of them found a file or a process of another call, and how fast it was.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import ocisbx

SCRIPT = """
readlink /proc/self/ns/pid | tr '\\n' ' '; cut -d' ' -f22 /proc/1/stat
ls -A /tmp /var/tmp /dev/shm | grep soak-mark
cat /proc/[0-9]*/comm | grep sleep
touch /tmp/soak-mark /dev/shm/soak-mark
sleep 986 >/dev/null 2>&1 &
"""


def main(calls: int, threads: int) -> None:
    seen: list[bytes] = []

    def work() -> None:
        seen.extend(pool.run(["sh", "-c", SCRIPT]).stdout for _ in range(calls // threads))

    with ocisbx.Pool(size=8, workspace="none", audit=False) as pool:
        began = time.monotonic()
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        took_s = time.monotonic() - began
    firsts = {text.splitlines()[0] for text in seen}
    found = sum(len(text.splitlines()) > 1 for text in seen)
    told = {"calls": len(seen), "containers": len(firsts), "found_another": found}
    print(json.dumps({**told, "calls_per_s": round(len(seen) / took_s, 1)}))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(10_000, 4)[len(given) :])
