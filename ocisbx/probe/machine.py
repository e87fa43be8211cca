"""What a measurement depends on: the machine, its load, and the memory that processes hold."""

from __future__ import annotations

import itertools
import os
import platform
import time
from typing import Any, NamedTuple

import psutil

from ocisbx.probe.processes import command_line

# Kernel memory that comes with processes and namespaces (proc_meminfo(5)).
KERNEL_FIELDS = ("SUnreclaim", "KernelStack", "PageTables", "Percpu")


def machine_facts() -> dict[str, Any]:
    """The machine, its kernel and this Python, as a result names them."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "unprivileged",
    }


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def load_now() -> dict[str, Any]:
    """When it is, and how busy the machine was in the last minute."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"at": at, "load": round(os.getloadavg()[0], 2)}


class Held(NamedTuple):
    """What processes hold: their shares of memory (PSS, proc_pid_smaps(5)); None: of one of them
    it cannot be read."""

    processes: int
    pss_bytes: int | None


def held_by(pid: int, mark: str, but: str) -> Held:
    """All below process `pid`; and every process that has `mark` in its arguments, with what is
    below it and those above it that are there for it. None that has the argument `but`."""
    root = psutil.Process(pid)
    found = {one.pid: one for one in root.children(recursive=True)}
    # Ours, and those of the whole system.
    shared = {1, pid, *(one.pid for one in root.parents())}
    for process in psutil.process_iter(["cmdline"]):
        if not any(mark in word for word in process.info["cmdline"] or ()):
            continue
        above = itertools.takewhile(lambda one: one.pid not in shared, process.parents())
        found |= {one.pid: one for one in (process, *process.children(recursive=True), *above)}
    counted = [one for one in found.values() if but.encode() not in command_line(one.pid)]
    total = 0
    for process in counted:
        try:
            total += int(process.memory_full_info().pss)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:
            return Held(len(counted), None)
    return Held(len(counted), total)


def kernel_memory_bytes() -> int:
    """What the kernel holds for all processes of the machine."""
    total = 0
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in KERNEL_FIELDS:
                total += int(rest.split()[0]) << 10
    return total
