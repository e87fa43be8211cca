"""What is run in every launcher: commands of the system, and what each has to print."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ocisbx import command
from ocisbx.probe.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1 << 20


class Workload(NamedTuple):
    """`argv[0]` is looked up in the system's directories; `stdout_bytes` is how much it prints.
    `code`: the same as source, for an interpreter (`argv[0]`) that has started before."""

    name: str
    argv: tuple[str, ...]
    about: str
    stdout_bytes: int = 0
    code: str = ""


FILES = "for i in {range}; do echo $i >ocisbx-bench-$i; done; rm ocisbx-bench-*".format(
    range=" ".join(map(str, range(100)))
)

WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("true", ("true",), "the smallest program"),
        Workload("sh", ("sh", "-c", ":"), "a shell"),
        Workload(
            "python",
            ("python3", "-I", "-c", "print(1+1)"),
            "the system's Python, one line",
            stdout_bytes=2,
            code="print(1+1)",
        ),
        Workload(
            "node",
            ("node", "-e", "console.log(1+1)"),
            "Node.js, one line",
            stdout_bytes=2,
            code="console.log(1+1)",
        ),
        Workload(
            "output",
            ("head", "-c", str(MIB), "/dev/zero"),
            "1 MiB of output, read to its end",
            stdout_bytes=MIB,
        ),
        Workload("files", ("sh", "-c", FILES), "100 small files written into the workspace"),
    )
}


def find(workload: Workload) -> list[str] | None:
    """Its command line with the program's absolute path; None: the system does not have it."""
    program = find_program(workload.argv[0], command.ENVIRONMENT["PATH"])
    return None if program is None else [program, *workload.argv[1:]]
