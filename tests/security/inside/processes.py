"""Who the payload is and what it sees of processes, namespaces, limits, environment, network."""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.security.inside.calls import in_a_child

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups")


def error_of(work: Callable[[], object]) -> str:
    """`ok`, or the name of the errno that it raised."""
    try:
        work()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def fields(path: str) -> dict[str, str]:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return {name: value.strip() for name, _, value in lines if name in SHOWN}


def threads() -> list[dict[str, str]]:
    """Of every thread of every process here, while this one has a second thread."""
    stop = threading.Event()
    second = threading.Thread(target=stop.wait)
    second.start()
    try:
        return [
            fields(f"/proc/{pid}/task/{thread}/status")
            for pid in numbers("/proc")
            for thread in numbers(f"/proc/{pid}/task")
        ]
    finally:
        stop.set()
        second.join()


def numbers(directory: str) -> list[str]:
    return [name for name in os.listdir(directory) if name.isdigit()]


def identity() -> dict[str, object]:
    return {
        "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
        "groups": os.getgroups(),
        "uid_map": Path("/proc/self/uid_map").read_text().split(),
        "gid_map": Path("/proc/self/gid_map").read_text().split(),
        "setgroups": Path("/proc/self/setgroups").read_text().strip(),
    }


def namespaces() -> dict[str, str]:
    own = "/proc/self/ns"
    return {name: os.readlink(f"{own}/{name}") for name in os.listdir(own)}


def pids() -> list[int]:
    return sorted(map(int, numbers("/proc")))


def network() -> dict[str, object]:
    routes = Path("/proc/net/route").read_text().splitlines()[1:]
    routes6 = [line.split() for line in Path("/proc/net/ipv6_route").read_text().splitlines()]
    return {
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "routes": routes,
        "routes6": [" ".join(line) for line in routes6 if line[-1] != "lo"],
    }


def abstract_socket() -> str:
    """A connect to the name that somebody outside listens at."""
    with socket.socket(socket.AF_UNIX) as client:
        return error_of(lambda: client.connect("\0" + sys.argv[2]))


def hostname() -> str:
    return socket.gethostname()


def limits() -> dict[str, list[int]]:
    names = ("CORE", "NOFILE", "NPROC", "FSIZE", "MEMLOCK")
    return {name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))) for name in names}


def environment() -> dict[str, str]:
    return dict(os.environ)


def init_environment() -> str:
    """What process 1 was started with, if it can be read at all."""
    try:
        return Path("/proc/1/environ").read_bytes().decode(errors="replace")
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def other_memory() -> dict[str, str]:
    """The memory of process 1, by /proc."""
    return {
        "mem": in_a_child(lambda: os.close(os.open("/proc/1/mem", os.O_RDWR))),
        "maps": in_a_child(lambda: read_some("/proc/1/maps")),
        "environ": in_a_child(lambda: read_some("/proc/1/environ")),
    }


def read_some(path: str) -> None:
    with open(path, "rb") as file:
        file.read(100)


def oom_score() -> dict[str, object]:
    return {
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
        "lower": in_a_child(lambda: write_text("/proc/self/oom_score_adj", "-500")),
    }


def write_text(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())


def cgroup() -> list[str]:
    return [line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()]


def threads_start() -> str:
    """A thread, as glibc starts one: clone3 first, and clone where that is not there."""
    worked: list[int] = []
    thread = threading.Thread(target=lambda: worked.append(1))
    try:
        thread.start()
    except RuntimeError:
        return "no"
    thread.join()
    return "ok" if worked else "no"


OBSERVATIONS: dict[str, Callable[[], object]] = {
    "threads": threads,
    "identity": identity,
    "namespaces": namespaces,
    "pids": pids,
    "network": network,
    "abstract_socket": abstract_socket,
    "hostname": hostname,
    "limits": limits,
    "environment": environment,
    "init_environment": init_environment,
    "other_memory": other_memory,
    "oom_score": oom_score,
    "cgroup": cgroup,
    "threads_start": threads_start,
}
