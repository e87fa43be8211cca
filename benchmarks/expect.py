"""Expect beside plain pexpect, on the same programs, in one run.

    python -m benchmarks.expect [--prompts N] [--megabytes N] [--rounds N] [--keep]

prompts: from the moment at which a program writes a prompt to the moment at which its match is
known; both drivers in turn, `--rounds` times, a program of its own each time. pexpect without its
sleep after each read (`delayafterread`) is a third contender. Goal: p50 at most 1.2 x pexpect's.

flood: a program writes `--megabytes` and then a prompt, which is waited for, as a regex and as
plain text. pexpect searches all that came with each read, unless it is given a window (200
characters here), so that is what it is measured with. Goal: no less than pexpect's rate.
Prints one JSON object; `--keep` writes results/expect.json.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pexpect

from benchmarks.common import host_facts, interleave, keep, summarize
from ocisbx.expect.expecting import Expect

if TYPE_CHECKING:
    from collections.abc import Callable

LATENCY_GOAL = 1.2
RATE_GOAL = 1.0
WINDOW = 200
PROMPTER = """
import os, sys, time, tty
tty.setraw(0)
for _ in range(int(sys.argv[1])):
    time.sleep(0.002)
    os.write(1, b"%d > " % time.time_ns())
    os.read(0, 100)
"""
FLOODER = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"up\\n")
os.read(0, 1)
block = (b"some line of output that a build or a download prints, number\\n" * 1100)[:65536]
left = int(sys.argv[1])
while left > 0:
    left -= os.write(1, block[:left])
os.write(1, b"DONE> ")
os.read(0, 1)
"""


def start(source: str, argument: int) -> Any:  # noqa: ANN401 -- pexpect's object
    return pexpect.spawn(sys.executable, ["-I", "-c", source, str(argument)], encoding="utf-8")


def by_pexpect(prompts: int, delay_s: float | None) -> list[float]:
    child = start(PROMPTER, prompts)
    child.delaybeforesend, child.delayafterread = None, delay_s
    samples = []
    for _ in range(prompts):
        child.expect(r"(\d+) > ")
        samples.append((time.time_ns() - int(child.match[1])) / 1e9)
        child.send("x")
    child.close(force=True)
    return samples


def by_ours(prompts: int) -> list[float]:
    child = start(PROMPTER, prompts)
    terminal = Expect(child.child_fd)
    samples = []
    for _ in range(prompts):
        terminal.expect(r"(\d+) > ")
        samples.append((time.time_ns() - int(terminal.match[1])) / 1e9)
        terminal.send("x")
    child.close(force=True)
    return samples


def prompts_row(prompts: int, rounds: int) -> dict[str, Any]:
    contenders: dict[str, Callable[[], list[float]]] = {
        "ocisbx": lambda: by_ours(prompts // rounds),
        "pexpect": lambda: by_pexpect(prompts // rounds, 0.0001),
        "pexpect without its sleep": lambda: by_pexpect(prompts // rounds, None),
    }
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            samples[name] += measure()
    found = {name: summarize(values) for name, values in samples.items()}
    ours = found["ocisbx"]["p50_ms"]
    return {
        "what": "prompts",
        **found,
        "ratio": round(ours / found["pexpect"]["p50_ms"], 3),
        "ratio_without_sleep": round(ours / found["pexpect without its sleep"]["p50_ms"], 3),
    }


def flood(megabytes: int, wait: Callable[[Any], object], *, ours: bool) -> float:
    """Seconds from the answer that lets the program write to the match at the end."""
    child = start(FLOODER, megabytes * 1_000_000)
    child.delaybeforesend = None
    driver = Expect(child.child_fd) if ours else child
    driver.expect("up\n")
    began = time.perf_counter()
    driver.send("x")
    wait(driver)
    elapsed_s = time.perf_counter() - began
    assert len(driver.before) > 1_000_000
    child.close(force=True)
    return elapsed_s


def flood_row(megabytes: int, rounds: int, kind: str) -> dict[str, Any]:
    if kind == "regex":
        pattern = re.compile("DONE> $")
        ours = lambda: flood(megabytes, lambda d: d.expect(pattern, 600), ours=True)  # noqa: E731
        theirs = lambda: flood(  # noqa: E731
            megabytes,
            lambda d: d.expect(pattern, timeout=600, searchwindowsize=WINDOW),
            ours=False,
        )
    else:
        ours = lambda: flood(megabytes, lambda d: d.expect_exact("DONE> ", 600), ours=True)  # noqa: E731
        theirs = lambda: flood(  # noqa: E731
            megabytes, lambda d: d.expect_exact("DONE> ", timeout=600), ours=False
        )
    samples = interleave({"ocisbx": ours, "pexpect": theirs}, rounds, 0)
    rates = {name: round(megabytes / min(values), 1) for name, values in samples.items()}
    return {
        "what": f"flood, {kind}",
        "megabytes": megabytes,
        "mb_per_s": rates,
        "ratio": round(rates["ocisbx"] / rates["pexpect"], 2),
    }


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="write into benchmarks/results")
    options = parser.parse_args()
    host = host_facts()
    prompts = prompts_row(options.prompts, options.rounds)
    floods = [
        flood_row(options.megabytes, max(1, options.rounds // 2), kind)
        for kind in ("regex", "plain text")
    ]
    document = {
        "benchmark": "expect",
        "host": host,
        "configuration": {"pexpect": pexpect.__version__, "rounds": options.rounds},
        "rows": [prompts, *floods],
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("expect", document)
    met = prompts["ratio"] <= LATENCY_GOAL and all(row["ratio"] >= RATE_GOAL for row in floods)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
