"""How fast a payload's output is relayed into a capture file, against `COMMAND | cat > file`.

    python -m benchmarks.relay [--size BYTES] [--rounds N] [--directory DIR] [--keep]

Both sides run the same command, in turn, in one run; the ratio of the fastest rounds is what
counts (1.0: as fast as cat; the floor that we hold is 0.5). The relay is a Python process of its
own, whose growth of peak memory is reported too. No container is involved: a pipe is a pipe.
Prints one JSON object; `--keep` writes results/relay.json.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, host_facts, keep
from ocisbx.capture import PIPE_BYTES, FileSink, ForwardSink, OutputStream, Sink

FLOOR_RATIO = 0.5
# What the payload does, and the share of --size that it writes (a 64-byte write is 1,000 times
# dearer than its bytes).
PAYLOADS = {
    "blocks of 8 KiB": (["head", "-c", "{size}", "/dev/zero"], 1),
    "blocks of 1 MiB": (["dd", "if=/dev/zero", "bs=1M", "count={size}", "iflag=count_bytes"], 1),
    "writes of 64 bytes": (
        ["dd", "if=/dev/zero", "bs=64", "count={size}", "iflag=count_bytes"],
        64,
    ),
}


def command_of(payload: str, size: int) -> tuple[list[str], int]:
    words, divisor = PAYLOADS[payload]
    size = size // divisor // 64 * 64
    return [word.format(size=size) for word in words], size


def peak_bytes() -> int:
    # Not ru_maxrss: exec carries the parent's into it.
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def relay(command: list[str], sink: Sink) -> dict[str, Any]:
    """What the driver's loop does with one stream, timed from the payload's start to its end."""
    peak_before = peak_bytes()
    started = time.perf_counter()
    reader, writer = os.pipe()
    payload = subprocess.Popen(command, stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    stream = OutputStream("stdout", reader, 1 << 40, sink)
    pumps = 0
    while (watched := stream.watch()) is not None:
        poller = select.poll()
        poller.register(*watched)
        poller.poll()
        stream.pump()
        pumps += 1
    payload.wait()
    elapsed_s = time.perf_counter() - started
    captured = stream.finish()
    return {
        "elapsed_s": elapsed_s,
        "total_bytes": captured.total_bytes,
        "pumps": pumps,
        "grown_bytes": peak_bytes() - peak_before,
    }


def relay_in_child(payload: str, size: int, sink: str, directory: str) -> dict[str, Any]:
    arguments = ["--size", str(size), "--directory", directory, "--relay", payload, "--sink", sink]
    argv = [sys.executable, "-m", "benchmarks.relay", *arguments]
    # sh -c '... | cat > file' gives the forwarding relay the same far end as a shell does.
    script = 'exec "$@"' if sink == "file" else '{ "$@" 3>&1 >&4 | cat > "$0"; } 4>&1'
    ran = subprocess.run(
        ["/bin/sh", "-c", script, f"{directory}/forwarded", *argv],
        check=True,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


def through_cat(command: list[str], directory: str, cats: int) -> float:
    """`COMMAND | cat > file`, in seconds; with two cats, what a forwarding relay replaces."""
    target = f"{directory}/cat"
    started = time.perf_counter()
    with Path(target).open("wb") as file:
        script = '"$@" 2>/dev/null' + " | cat" * cats
        subprocess.run(["/bin/sh", "-c", script, "sh", *command], check=True, stdout=file)
    elapsed_s = time.perf_counter() - started
    Path(target).unlink()
    return elapsed_s


def compare(payload: str, sink: str, size: int, rounds: int, directory: str) -> dict[str, Any]:
    command, size_bytes = command_of(payload, size)
    cat_s: list[float] = []
    relays: list[dict[str, Any]] = []
    for _ in range(rounds):
        cat_s.append(through_cat(command, directory, 1 if sink == "file" else 2))
        relays.append(relay_in_child(payload, size, sink, directory))
        assert relays[-1]["total_bytes"] == size_bytes
    best_s = min(one["elapsed_s"] for one in relays)
    return {
        "payload": payload,
        "sink": sink,
        "size_bytes": size_bytes,
        "cat_best_s": round(min(cat_s), 4),
        "relay_best_s": round(best_s, 4),
        "ratio": round(min(cat_s) / best_s, 2),
        "relay_mib_per_s": round(size_bytes / best_s / (1 << 20)),
        "pumps": relays[-1]["pumps"],
        "grown_bytes": max(one["grown_bytes"] for one in relays),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the files are written (default: a new one)")
    parser.add_argument("--keep", action="store_true", help="write into benchmarks/results")
    parser.add_argument("--relay", choices=PAYLOADS, help=argparse.SUPPRESS)
    parser.add_argument("--sink", choices=["file", "forward"], default="file")
    options = parser.parse_args()
    if options.relay:
        command, _ = command_of(options.relay, options.size)
        forward = options.sink == "forward"
        sink = ForwardSink(3) if forward else FileSink(options.directory, "relayed")
        print(json.dumps(relay(command, sink)))
        return 0
    host = host_facts()
    directory = tempfile.mkdtemp(prefix="ocisbx-relay-", dir=options.directory)
    try:
        rows = [
            compare(payload, sink, options.size, options.rounds, directory)
            for payload in PAYLOADS
            for sink in ("file", "forward")
        ]
    finally:
        shutil.rmtree(directory)
    document = {
        "benchmark": "relay",
        "host": host,
        "configuration": {"pipe_bytes": PIPE_BYTES, "rounds": options.rounds},
        "rows": rows,
    }
    print(json.dumps(document, indent=2))
    if options.keep:
        keep("relay", document)
    return 0 if all(row["ratio"] >= FLOOR_RATIO for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
