"""Starts programs by posix_spawn and times them, for the benchmark that drives it over pipes.

    python benchmarks/spawner.py < REQUESTS > ANSWERS

One line is one JSON object, {argv, environment}; the answer is one line, [seconds, seconds of
processor time of the program and of all that it waited for, exit status].
A process of its own, so that it can live in namespaces that its programs need (ocisbx-cell).
Standard library only: it measures the program, and must be small.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    for line in sys.stdin:
        request = json.loads(line)
        argv, environment = request["argv"], request["environment"]
        started = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        elapsed_s = time.perf_counter() - started
        cpu_s = usage.ru_utime + usage.ru_stime
        print(json.dumps([elapsed_s, cpu_s, os.waitstatus_to_exitcode(status)]), flush=True)


if __name__ == "__main__":
    main()
