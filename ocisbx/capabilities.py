"""Names of Linux capabilities, and what a list of them means; standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocisbx.values import check_text, did_you_mean, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# capabilities(7), up to Linux 6.x; in the kernel's order.
CAPABILITIES: tuple[str, ...] = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
)


def parse_capability(value: object) -> str:
    """`net_raw`, `CAP_NET_RAW` or `ALL` in the spec's spelling: `CAP_NET_RAW`, `ALL`."""
    text = check_text(value, "a capability")
    name = text.upper()
    if name in {"ALL", "CAP_ALL"}:
        return "ALL"
    full = name if name.startswith("CAP_") else f"CAP_{name}"
    if full not in CAPABILITIES:
        why = f"expected a name of capabilities(7) or ALL{did_you_mean(full, CAPABILITIES)}"
        raise refusal(text, "a capability", why)
    return full


def parse_capabilities(values: Iterable[object]) -> tuple[str, ...]:
    """The field `capabilities`: the exact set ("CHOWN"), or changes of the level's ("+CHOWN").

    Raises ConfigError when both forms are mixed: what the plain names mean would be unclear.
    """
    entries = [check_text(value, "a capability") for value in values]
    signs = [entry[:1] if entry[:1] in {"+", "-"} else "" for entry in entries]
    if "" in signs and len(set(signs)) > 1:
        why = "either every entry has a + or -, or none has"
        raise refusal(entries, "a list of capabilities", why)
    pairs = zip(signs, entries, strict=True)
    return tuple(
        dict.fromkeys(sign + parse_capability(entry[len(sign) :]) for sign, entry in pairs)
    )


def apply_capabilities(base: Iterable[str], entries: Sequence[str]) -> tuple[str, ...]:
    """The set that `entries` (of parse_capabilities) make of `base`, in the kernel's order.

    As docker's --cap-add and --cap-drop: `-ALL` empties the base before anything is added, a
    name after `-` is taken out of `+ALL` too, and a name that is both dropped and added stays.
    """
    chosen, dropped = set(entries), set[str]()
    if entries and entries[0][0] in "+-":
        added = {entry[1:] for entry in entries if entry[0] == "+"}
        dropped = {entry[1:] for entry in entries if entry[0] == "-"}
        chosen = added if "ALL" in dropped else set(base) | added
        dropped -= added
    if "ALL" in chosen:
        chosen = set(CAPABILITIES)
    return tuple(name for name in CAPABILITIES if name in chosen - dropped)
