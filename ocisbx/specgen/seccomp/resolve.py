"""Our profile for one machine, kernel and set of capabilities, as config.json wants it.

`defaultErrnoRet` and `errnoRet` came with runtime-spec 1.1.0: a config.json that holds the result
says `"ociVersion": "1.1.0"`, which crun 1.8.1 and runc 1.1.5 accept too (crun 1.8.1 refuses 1.2).

What shapes the rules:

- libseccomp has no "allow but for this value": beside a rule without conditions those with
  conditions are dropped. So each conditional call gets allowing and refusing rules that do not
  overlap, and their order means nothing.
- Conditions compare 64 bits, the kernel looks at the low 32 of an int. A value that is refused is
  therefore named under a mask (CVE-2019-10063 was a refusal that high bits walked around); a value
  that is allowed may be compared whole.
- runc and crun skip names that their libseccomp does not know. Under our default these calls
  answer ENOSYS, so an old libseccomp costs a newer call and opens nothing.
- One condition per argument in a rule: crun's libseccomp refuses two, runc reads them as "or".
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Literal

from ocisbx.errors import Unsupported
from ocisbx.specgen.seccomp import profile
from ocisbx.specgen.seccomp.order import highest_first

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

Clone3 = Literal["enosys", "allow"]

# uname(2) machine -> seccomp's name. One architecture only: with 32-bit and x32 calls left out of
# the list libseccomp kills the caller, which also shuts socketcall's way around the socket rules.
ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

ALLOW = "SCMP_ACT_ALLOW"
REFUSE = "SCMP_ACT_ERRNO"
LOW_32 = 0xFFFFFFFF
LOW_16 = 0xFFFF


def default_profile(
    machine: str,
    kernel: tuple[int, int],
    capabilities: Collection[str],
    clone3: Clone3 = "enosys",
) -> dict[str, object]:
    """The `linux.seccomp` object of runtime-spec 1.1.0.

    `machine` is uname's, `kernel` its release as (major, minor), `capabilities` the bounding set
    by name (`CAP_SYS_ADMIN`). `clone3="enosys"` makes glibc fall back to clone, whose flags a
    filter can read; gVisor turns every errno into EPERM, after which no thread starts, and needs
    "allow". Raises Unsupported for a machine that the profile was not written for.
    """
    if machine not in ARCHITECTURES:
        raise Unsupported(
            f"the default seccomp profile knows no machine {machine}",
            why=f"it is written for {' and '.join(ARCHITECTURES)}",
            remedy="give a profile with --seccomp FILE, or none with --seccomp none",
        )
    granted = _granted(capabilities)
    allowed = granted | _names(profile.ALLOWED)
    if kernel >= profile.DEBUGGING_KERNEL:
        allowed |= set(profile.DEBUGGING.names.split())
    if clone3 == "allow":
        allowed.add("clone3")
    refused = _names(profile.REFUSED) - allowed
    rules = [
        _rule(_existing(allowed, machine), ALLOW),
        _rule(_existing(refused, machine), REFUSE, error=errno.EPERM),
        *_ioctl(),
        *_personality(),
        _rule(["prlimit64"], ALLOW, _masked(0, LOW_32, profile.OWN_PROCESS)),
        *_socket(capabilities),
        *_socketpair(),
    ]
    if "clone" not in granted:
        rules += _clone()
    return {
        "defaultAction": REFUSE,
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [ARCHITECTURES[machine]],
        "syscalls": rules,
    }


def blocks_without(values: Iterable[int], bits: int) -> Iterator[tuple[int, int]]:
    """(mask, value) pairs which match every number of `bits` bits but `values`, each once.

    >>> [f"{mask:03b} {value:03b}" for mask, value in blocks_without({0b010}, 3)]
    ['110 000', '111 011', '100 100']
    """
    full = (1 << bits) - 1
    pending = [(bits, 0, frozenset(values))]
    while pending:
        free, base, inside = pending.pop()
        if not inside:
            yield full & ~((1 << free) - 1), base
        elif free:
            upper = base | 1 << (free - 1)
            high = frozenset(value for value in inside if value >= upper)
            pending += [(free - 1, upper, high), (free - 1, base, inside - high)]


def _clone() -> list[dict[str, object]]:
    """Threads and processes, but no namespaces; which flag was wrong costs one rule each."""
    flags = profile.NAMESPACE_FLAGS.values()
    allow = _rule(["clone"], ALLOW, _masked(0, sum(flags), 0))
    refuse = (_rule(["clone"], REFUSE, _masked(0, f, f), error=errno.EPERM) for f in flags)
    return [allow, *refuse]


def _ioctl() -> list[dict[str, object]]:
    """Every request but some terminal ones, told by the low 16 bits: type and number.

    The kernel reads 32; with 16 a request of the same type and number that also has a direction
    and a size is refused. The only one is a sound timer's, SNDRV_TIMER_IOCTL_PARAMS.
    """
    requests = profile.REFUSED_IOCTLS.values()
    allow = (_rule(["ioctl"], ALLOW, _masked(1, *b)) for b in blocks_without(requests, 16))
    refuse = (
        _rule(["ioctl"], REFUSE, _masked(1, LOW_16, request), error=errno.EPERM)
        for request in requests
    )
    return [*allow, *refuse]


def _personality() -> list[dict[str, object]]:
    """Harmless ones; ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC and the like get the default errno."""
    query = profile.PERSONALITY_QUERY
    return [
        _rule(["personality"], ALLOW, _masked(0, LOW_32 & ~profile.PERSONALITY_BITS, 0)),
        _rule(["personality"], ALLOW, _masked(0, query, query)),
    ]


def _socket(capabilities: Collection[str]) -> list[dict[str, object]]:
    """Families by allow-list; the others as in a kernel without them.

    EAFNOSUPPORT matters: libaudit, hence useradd and PAM, go on without audit only on it.
    """
    families = set(profile.SOCKET_FAMILIES.values())
    for capability, more in profile.FAMILIES_GRANTED.items():
        if capability in capabilities:
            families |= set(more.values())
    netlink: list[dict[str, object]] = []
    if profile.NETLINK_CAPABILITY in capabilities:
        families.add(profile.AF_NETLINK)
    else:
        family, route = profile.AF_NETLINK, profile.NETLINK_ROUTE
        routes = (_compared(0, "EQ", family), _compared(2, "EQ", route))
        others = (_compared(0, "EQ", family), _compared(2, "NE", route))
        netlink = [
            _rule(["socket"], ALLOW, *routes),
            _rule(["socket"], REFUSE, *others, error=errno.EAFNOSUPPORT),
        ]
    known = families | {profile.AF_NETLINK}
    last = max(known)
    bits = last.bit_length()
    above = LOW_32 & ~((1 << bits) - 1)
    blocks = (block for block in blocks_without(known, bits) if block[1] < last)
    refused = [_masked(0, above | mask, value) for mask, value in blocks]
    refused.append(_compared(0, "GT", last))
    return [
        *(_rule(["socket"], ALLOW, _compared(0, "EQ", family)) for family in sorted(families)),
        *netlink,
        *(_rule(["socket"], REFUSE, condition, error=errno.EAFNOSUPPORT) for condition in refused),
    ]


def _socketpair() -> list[dict[str, object]]:
    """AF_UNIX only; socket(2)'s refusals would otherwise be walked around here."""
    unix = profile.SOCKET_FAMILIES["AF_UNIX"]
    return [
        _rule(["socketpair"], ALLOW, _compared(0, "EQ", unix)),
        _rule(["socketpair"], REFUSE, _compared(0, "NE", unix), error=errno.EOPNOTSUPP),
    ]


def _granted(capabilities: Collection[str]) -> set[str]:
    return {name for c in capabilities for name in profile.GRANTED.get(c, "").split()}


def _names(groups: Iterable[profile.Group]) -> set[str]:
    return {name for group in groups for name in group.names.split()}


def _existing(names: set[str], machine: str) -> list[str]:
    absent = profile.X86_64_ONLY.split() if machine != "x86_64" else []
    return highest_first(names.difference(absent))


def _rule(
    names: list[str], action: str, *conditions: dict[str, object], error: int | None = None
) -> dict[str, object]:
    rule: dict[str, object] = {"names": names, "action": action}
    if error is not None:
        rule["errnoRet"] = error
    if conditions:
        rule["args"] = list(conditions)
    return rule


def _compared(index: int, operator: str, value: int) -> dict[str, object]:
    return {"index": index, "value": value, "op": f"SCMP_CMP_{operator}"}


def _masked(index: int, mask: int, value: int) -> dict[str, object]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
