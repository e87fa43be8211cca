"""All assertions: the two tables, and those with a scene of their own."""

from __future__ import annotations

from tests.security import rows_calls, rows_files, rows_limits, rows_process
from tests.security.rows import Row

HOST_TESTS = "tests/security/test_host.py"


def elsewhere(number: int, name: str, held_by: str, test: str, counter_test: str) -> Row:
    return Row(
        number,
        name,
        held_by,
        side="host",
        test=test if "/" in test else f"{HOST_TESTS}::{test}",
        counter_test=counter_test if "/" in counter_test else f"{HOST_TESTS}::{counter_test}",
    )


SCENES = (
    elsewhere(
        60,
        "what a fork bomb leaves is dead within a second of the call's end",
        "pid namespace, the init",
        "test_a_fork_bomb_ends_with_the_call",
        "tests/security/test_assertions.py::test_a_mutant_is_noticed",
    ),
    elsewhere(
        61,
        "a memory hog meets its limit, and its neighbour goes on",
        "rlimits",
        "test_a_memory_hog_meets_its_limit",
        "test_a_memory_hog_meets_none_without_it",
    ),
    elsewhere(
        62,
        "a flood of output is cut at the cap, and the driver does not grow",
        "capture",
        "test_a_flood_is_cut_and_kept_out_of_memory",
        "test_a_flood_grows_a_driver_that_keeps_it",
    ),
    elsewhere(
        64,
        "nothing is left of a call whose driver was killed, after gc",
        "the init, gc",
        "tests/runtimes/test_killed_driver.py::test_ten_deaths_at_each_step_and_gc",
        "tests/runtimes/test_killed_driver.py::test_ten_deaths_at_each_step_and_gc",
    ),
    elsewhere(
        68,
        "escape sequences are inert in what ocisbx prints about a payload",
        "printable(), show()",
        "test_escape_sequences_are_inert",
        "test_escape_sequences_act_when_nothing_is_rendered",
    ),
    elsewhere(
        69,
        "symlinks, FIFOs, devices and huge files of a workspace do not hold up or mislead the host",
        "readers that check what they opened",
        "test_hostile_files_are_no_trap",
        "test_hostile_files_trap_a_plain_reader",
    ),
    elsewhere(
        70,
        "annotations that steer a runtime are refused",
        "STEERING_ANNOTATIONS",
        "test_steering_annotations_are_refused",
        "test_steering_annotations_get_in_without_the_list",
    ),
    elsewhere(
        70,
        "hostile names are refused",
        "values",
        "test_hostile_names_are_refused",
        "test_hostile_names_get_in_without_the_check",
    ),
)

OBSERVED = (*rows_process.ROWS, *rows_files.ROWS, *rows_calls.ROWS, *rows_limits.ROWS)
ROWS = (*OBSERVED, *SCENES)
