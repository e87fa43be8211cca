"""Which runtime runs it: the caller's list in order, the fastest sound one, or the strongest.

Pure: what was found and what came of trying it stand in the Host record. A runtime that was not
tried is taken for sound, so that a described host needs no trials.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.errors import RuntimeMissing, Unsupported
from ocisbx.quirks import AUTO_ORDER, KNOWN_NAMES, STRONGEST_ORDER, find_quirks, parse_version

if TYPE_CHECKING:
    from ocisbx.host import Host, RuntimeBinary

INSTALL = "as an administrator: apt-get install crun (or runc); `ocisbx doctor` tells more"
USE_ANOTHER = "--runtime auto takes the best of these; `ocisbx features` tells more about each"
INSTALL_OWN_KERNEL = (
    "install gVisor's runsc (https://gvisor.dev/docs/user_guide/install/), or go on with the "
    "host's kernel: --allow-degraded kernel"
)

ORDERS: dict[str, tuple[str, ...]] = {"auto": AUTO_ORDER, "strongest": STRONGEST_ORDER}


class Wanted(NamedTuple):
    """What a configuration asks of its runtime.

    `needs` holds the names of `enforcement` without which it must not run; `own_kernel`: it must
    not run on the host's.
    """

    names: tuple[str, ...] = ()
    platform: str | None = None
    needs: frozenset[str] = frozenset()
    own_kernel: bool = False
    network: str = "none"


def has_own_kernel(runtime: RuntimeBinary) -> bool:
    return find_quirks(runtime.name, runtime.version).user_kernel


def platforms(runtime: RuntimeBinary, asked: str | None) -> tuple[str | None, ...]:
    """The platforms to try, in order; (None,) for a runtime that knows none."""
    if runtime.trouble:
        return (None,)
    known = find_quirks(runtime.name, runtime.version).platforms
    if not known:
        return (None,) if asked in (None, "auto") else ()
    return known if asked in (None, "auto") else (asked,)


def candidates(wanted: Wanted, host: Host) -> list[RuntimeBinary]:
    """Every runtime that may be taken, the first choice first; of one name the newest first."""
    found: list[RuntimeBinary] = []
    for name in wanted.names or ("auto",):
        found += [runtime for runtime in _named(name, host) if runtime not in found]
    return [runtime for runtime in found if platforms(runtime, wanted.platform)]


def objection(runtime: RuntimeBinary, wanted: Wanted) -> str:
    """Why this candidate is not taken; empty: it is."""
    if runtime.trouble:
        return runtime.trouble
    if wanted.network not in find_quirks(runtime.name, runtime.version).networks:
        return f"it cannot give network {wanted.network}"
    ignored = sorted(wanted.needs & set(runtime.ignores))
    if ignored:
        return f"it ignores {', '.join(ignored)}"
    if wanted.own_kernel and not has_own_kernel(runtime):
        return "it runs the payload on the host's kernel"
    return ""


def select_runtime(wanted: Wanted, host: Host) -> RuntimeBinary:
    """The first candidate that nothing speaks against.

    Raises:
        RuntimeMissing: none of them is here, or works here.
        Unsupported: some work, but not as this configuration demands.
    """
    tried = candidates(wanted, host)
    for runtime in tried:
        if not objection(runtime, wanted):
            return runtime
    asked = ", ".join(wanted.names or ("auto",))
    if not tried:
        raise _missing(wanted, host, asked)
    why = "; ".join(f"{show_runtime(r)}: {objection(r, wanted)}" for r in tried)
    if any(not runtime.trouble for runtime in tried):
        what, remedy = _unheld(wanted, tried)
        raise Unsupported(what, why=why, remedy=remedy)
    remedy = next((r.remedy for r in tried if r.remedy), "`ocisbx doctor` tells what to do")
    if len(tried) < len(host.runtimes):
        remedy = f"{remedy}; {USE_ANOTHER}"
    raise RuntimeMissing(f"no usable runtime: {asked} asked for", why=why, remedy=remedy)


def show_runtime(runtime: RuntimeBinary) -> str:
    return f"{runtime.name} {runtime.version} ({runtime.path})"


def _named(name: str, host: Host) -> list[RuntimeBinary]:
    if name.startswith("/"):
        return [r for r in host.runtimes if r.path == posixpath.normpath(name)]
    order = ORDERS.get(name, (name,))
    if any(kind not in KNOWN_NAMES for kind in order):
        return []
    known = [r for r in host.runtimes if r.name in order]
    return sorted(
        known,
        key=lambda r: (order.index(r.name), [-part for part in parse_version(r.version)]),
    )


def _missing(wanted: Wanted, host: Host, asked: str) -> RuntimeMissing:
    found = ", ".join(map(show_runtime, host.runtimes)) or "none"
    if wanted.platform not in (None, "auto") and candidates(wanted._replace(platform=None), host):
        return RuntimeMissing(
            f"platform {wanted.platform} asked for, which {asked} does not have",
            why=f"platforms are gVisor's; found: {found}",
            remedy="--runtime runsc, or leave --platform out",
        )
    return RuntimeMissing(
        f"no usable runtime: {asked} asked for",
        why=f"found: {found}",
        remedy=USE_ANOTHER if any(r.name in AUTO_ORDER for r in host.runtimes) else INSTALL,
    )


def _unheld(wanted: Wanted, tried: list[RuntimeBinary]) -> tuple[str, str]:
    sound = [runtime for runtime in tried if not runtime.trouble]
    ignored = sorted({name for r in sound for name in wanted.needs & set(r.ignores)})
    if ignored:
        return (
            f"{', '.join(ignored)} cannot be enforced here",
            f"install crun or runc as your distribution builds them; {USE_ANOTHER}",
        )
    networks = [find_quirks(r.name, r.version).networks for r in sound]
    if not any(wanted.network in known for known in networks):
        return f"network {wanted.network} cannot be had here", USE_ANOTHER
    return "a kernel of the payload's own cannot be had here", INSTALL_OWN_KERNEL
