"""Each environment for real: what is seen of it, the place that is taken in it, and what cures it.

Remedies are pasted into a shell as they are printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.box import eventually
from tests.vm.environments import (
    LOOK,
    OTHER,
    forget_other,
    last_json,
    other_user,
    run_under_cron,
    seen_in,
    start_manager,
    sudo,
)

__all__ = ["other_user"]

ALL = ["cpu", "cpuset", "io", "memory", "pids"]
# For the guests that run a part only.
EVERY = pytest.mark.every_guest


def assert_held(told: dict[str, Any], controllers: list[str]) -> None:
    used = told["used"]
    assert "error" not in used, used
    assert used["limit"] == 64 << 20
    assert used["inside"].startswith(used["parent"] + "/ocisbx-test-")
    assert set(controllers) <= set(used["controllers"])
    assert used["same"]


# Name of the environment -> the scene, the way at first, the way once settled.
HELD = [
    pytest.param("scope", "delegated", "sibling", "sibling", marks=EVERY),
    pytest.param("undelegated scope", "undelegated", "scope", "sibling", marks=EVERY),
    ("user service", "undelegated", "scope", "sibling"),
    pytest.param("ssh", "session", "scope", "sibling", marks=EVERY),
    pytest.param("service", "service", "scope", "sibling", marks=EVERY),
    pytest.param("delegated service", "handed-over", "below", "below", marks=EVERY),
    ("su to who lingers", "su-lingering", "scope", "sibling"),
    ("root by ssh", "root", "sibling", "sibling"),
    ("root's service", "root", "sibling", "sibling"),
]


@pytest.mark.parametrize(("name", "scene", "way", "settled"), HELD)
def test_limits_hold(name: str, scene: str, way: str, settled: str) -> None:
    told = seen_in(name)
    assert (told["scene"], told["cgroups"]["way"], told["remedy"]) == (scene, way, "")
    assert told["used"]["way"] == settled
    assert_held(told, ALL)
    if way == "scope":
        own = told["used"]["own"]
        assert "/user@1000.service/app.slice/ocisbx-" in own
        assert own.endswith(".scope")
        # With the last process in it the scope goes, as soon as its manager comes to it.
        assert eventually(lambda: not Path(f"/sys/fs/cgroup{own}").exists())
    if way == "below":
        assert told["used"]["own"].endswith(".service/ocisbx-driver")


def test_cron_of_who_lingers() -> None:
    told = last_json(run_under_cron("dev", LOOK, Path("/tmp/ocisbx-cron-dev")))
    assert told["cgroups"]["own"] == "/system.slice/cron.service"
    assert (told["scene"], told["cgroups"]["way"]) == ("service", "scope")
    assert_held(told, ALL)


@pytest.mark.parametrize(
    ("name", "scene"),
    [pytest.param("service without manager", "no-manager", marks=EVERY), ("su", "su")],
)
def test_a_remedy_pasted_works(name: str, scene: str) -> None:
    forget_other()
    told = seen_in(name)
    assert (told["scene"], told["cgroups"]["way"]) == (scene, "none")
    assert "no cgroup can be made here" in told["used"]["error"]
    assert "sudo loginctl enable-linger" in told["remedy"]
    after = seen_in(name, f"{told['remedy']}\n{LOOK}")
    assert (after["cgroups"]["way"], after["remedy"]) == ("scope", "")
    assert_held(after, ALL)


def test_cron_of_who_does_not_linger() -> None:
    forget_other()
    told = last_json(run_under_cron(OTHER, LOOK, Path("/tmp/ocisbx-cron-first")))
    assert (told["scene"], told["cgroups"]["way"]) == ("no-manager", "none")
    lines = f"{told['remedy']}\n{LOOK}"
    after = last_json(run_under_cron(OTHER, lines, Path("/tmp/ocisbx-cron-then")))
    assert (after["scene"], after["cgroups"]["way"]) == ("service", "scope")
    assert_held(after, ALL)


def test_without_systemd_a_cgroup_is_handed_over_by_hand() -> None:
    """The remedy of a host without systemd, which works on one with it just as well."""
    forget_other()
    told = seen_in("service without manager", f"PRETEND='{{\"systemd\": false}}' {LOOK}")
    assert told["scene"] == "no-systemd"
    after = seen_in("service without manager", f"{told['remedy']}\n{LOOK}")
    assert (after["scene"], after["cgroups"]["way"]) == ("handed-over", "sibling")
    assert_held(after, ALL)
    sudo("cd /sys/fs/cgroup && rmdir user-*/shell user-*[0-9]")


def test_a_bus_is_not_needed_where_the_manager_itself_answers() -> None:
    """As without Debian's dbus-user-session."""
    forget_other()
    uid, _ = start_manager()
    sudo(f"rm /run/user/{uid}/bus")
    told = seen_in("service without manager")
    assert told["cgroups"]["user_bus"] == f"/run/user/{uid}/systemd/private"
    assert_held(told, ALL)


@pytest.mark.parametrize("dies", [False, True])
def test_a_manager_that_does_not_answer(dies: bool) -> None:  # noqa: FBT001 -- a table's column
    forget_other()
    _, pid = start_manager()
    sudo(f"kill -STOP {pid}")
    killed = f"KILL={pid} " if dies else ""
    try:
        told = seen_in("service without manager", killed + LOOK)
    finally:
        sudo(f"kill -CONT {pid} 2>/dev/null || true")
    assert told["cgroups"]["way"] == "scope"
    error = told["used"]["error"]
    assert "the systemd user manager gave us no cgroup of our own" in error
    assert dies or "no answer within " in error
    assert "remedy: " in error


def test_the_managers_own_controllers_are_extended() -> None:
    """Debian's user@.service hands out no cpuset and io; the guest's drop-in does."""
    forget_other()
    sudo("mv /etc/systemd/system/user@.service.d/delegate.conf /tmp; systemctl daemon-reload")
    uid, _ = start_manager()
    told = seen_in("service without manager", f"{LOOK} io")
    assert (told["scene"], told["cgroups"]["way"]) == ("few-controllers", "scope")
    assert_held(told, ["cpu", "memory", "pids"])
    assert "io" not in told["used"]["controllers"]
    # Instead of logging out and in again.
    again = f"{told['remedy']}\nsudo systemctl restart user@{uid}\n"
    after = seen_in("service without manager", f"{again}{LOOK} io")
    assert (after["scene"], after["remedy"]) == ("service", "")
    assert_held(after, ALL)
