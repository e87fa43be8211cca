"""C, C++ and make: the host's compilers on the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.box import Box
    from tests.programs.conftest import Work

pytestmark = pytest.mark.runtime

FILES = 60

MAKEFILE = """\
parts := $(patsubst %.c,%.o,$(wildcard part*.c))

program: main.o $(parts)
\tcc -o $@ $^

%.o: %.c
\t@echo $@ >>order
\tcc -O1 -c -o $@ $<
"""


def test_c_and_cxx_with_threads(work: Work) -> None:
    """With sanitizers too: they map terabytes of shadow and look at their own /proc."""
    script = """
        gcc -Wall -Werror -O2 -g -pthread -o threads threads.c
        g++ -Wall -Werror -O2 -std=c++17 -pthread -o tasks tasks.cc
        gcc -fsanitize=address,undefined -pthread -o checked threads.c
        ./threads; ./tasks; ./checked
    """
    assert work("compilers", script).splitlines() == [
        "80000 80000", f"{sum(range(8000))} thrown 1", "80000 80000",
    ]  # fmt: skip


def test_make_in_parallel(box: Box) -> None:
    names = [f"part{number}" for number in range(FILES)]
    for number, name in enumerate(names):
        (box.workspace / f"{name}.c").write_text(f"int {name}(void) {{ return {number}; }}\n")
    declared = "".join(f"int {name}(void);\n" for name in names)
    called = " + ".join(f"{name}()" for name in names)
    main = f'#include <stdio.h>\n{declared}int main(void) {{ printf("%d\\n", {called}); }}\n'
    (box.workspace / "main.c").write_text(main)
    (box.workspace / "Makefile").write_text(MAKEFILE)
    result = box.sh("make -j4 && ./program && make -j4")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    assert lines[-2:] == [str(sum(range(FILES))), "make: 'program' is up to date."]
    made = (box.workspace / "order").read_text().split()
    assert sorted(made) == sorted([*(f"{name}.o" for name in names), "main.o"])
