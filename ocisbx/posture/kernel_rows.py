"""Judgements of what the kernel withholds: users, rights, system calls, namespaces."""

from __future__ import annotations

from ocisbx.posture.facts import Identity, Subject
from ocisbx.posture.filter import allowed_count, allows_unknown, risky_calls
from ocisbx.posture.rows import Row, listed, source_of, weaker_live

ALL_CAPABILITIES = 38
# What sharing one with this machine gives the payload (namespaces(7)).
SHARED_NAMESPACES: dict[str, str] = {
    "mount": "what it mounts and unmounts, this machine sees",
    "pid": "it sees this machine's processes, and may signal those of its user",
    "ipc": "it shares System V and POSIX memory and queues with this machine",
    "uts": "it sees this machine's host name",
    "cgroup": "it sees where this machine's cgroups lie",
}
LOOPBACK = "lo"


def kernel(subject: Subject) -> Row:
    own = subject.declared.own_kernel()
    entry = subject.declared.enforcement.get("kernel")
    return Row(
        "kernel",
        "enforced" if own else "off",
        "spec" if entry is None else "declared",
        "a kernel of its own" if own else "this machine's kernel",
        entry.how if entry is not None else "no user-space kernel is used",
        "a program of the sandbox answers its system calls, not this machine's kernel"
        if own
        else "it is parted from this machine by what follows; a hole in the kernel is a way out",
    )


def user_namespace(subject: Subject) -> Row:
    facts = subject.effective()
    who = facts.identity or Identity(0, 0, None, 0)
    own = bool((facts.namespaces or {}).get("user"))
    field = "namespaces"
    mismatch = weaker_live(
        subject,
        field,
        lambda spec, live: (
            (spec.namespaces or {}).get("user") and not (live.namespaces or {}).get("user", True)
        ),
        "config.json asks for a user namespace, the container is in this machine's",
    )
    outside = "an unknown user" if who.outside is None else f"uid {who.outside}"
    more = f", and may become {who.others} more" if own and who.others else ""
    row = Row(
        "user_namespace",
        "enforced",
        source_of(subject, field),
        f"uid {who.uid} inside is {outside} on this machine{more}",
        "user namespace (user_namespaces(7))",
        "whatever gets out may do what that user may, and is not root",
        mismatch=mismatch,
    )
    if own and who.outside != 0:
        return row
    if own:
        warning = "its user is this machine's root: whatever gets out is root"
        return row._replace(state="partial", warning=warning)
    warning = "its users are this machine's own" + (
        ", and it is root: whatever gets out is root" if who.outside == 0 else ""
    )
    return row._replace(state="off", how="no user namespace", meaning="", warning=warning)


def groups(subject: Subject) -> Row | None:
    count = subject.effective().groups
    if count is None:
        return None
    warning = (
        f"it kept supplementary groups of the caller ({count}): it may use what is open to them"
    )
    return Row(
        "groups",
        "partial" if count else "enforced",
        source_of(subject, "groups"),
        f"the caller's: {count}" if count else "none",
        "setgroups(2) was not called" if count else "setgroups(2)",
        "a directory that is open to a group is not open to it" if not count else "",
        warning if count else "",
    )


def capabilities(subject: Subject) -> Row:
    facts = subject.effective()
    names = sorted(name.removeprefix("CAP_") for name in facts.capabilities or ())
    own = bool((facts.namespaces or {}).get("user"))
    where = "within its own user namespace only" if own else "ON THIS MACHINE"
    mismatch = weaker_live(
        subject,
        "capabilities",
        lambda spec, live: (live.capabilities or frozenset()) - (spec.capabilities or frozenset()),
        "it has capabilities that config.json does not give: "
        + listed(
            sorted(
                ((subject.live and subject.live.capabilities) or frozenset())
                - (subject.spec.capabilities or frozenset())
            )
        ),
    )
    state = "enforced" if not names else "off" if len(names) >= ALL_CAPABILITIES else "partial"
    return Row(
        "capabilities",
        state,  # type: ignore[arg-type]
        source_of(subject, "capabilities"),
        listed(names) if state != "off" else f"all {len(names)}",
        "all five sets (capabilities(7))",
        "root inside may do no more than an ordinary user"
        if not names
        else "root inside may do what these allow",
        f"it has capabilities, which hold {where}" if names else "",
        mismatch,
    )


def no_new_privileges(subject: Subject) -> Row:
    held = subject.effective().no_new_privileges
    return Row(
        "no_new_privileges",
        "enforced" if held else "off",
        source_of(subject, "no_new_privileges"),
        "yes" if held else "no",
        "prctl(2), PR_SET_NO_NEW_PRIVS",
        "no program that it starts, setuid or with file capabilities, raises its rights"
        if held
        else "",
        "" if held else "a setuid program, or one with file capabilities, can raise its rights",
        weaker_live(
            subject,
            "no_new_privileges",
            lambda spec, live: spec.no_new_privileges and not live.no_new_privileges,
            "config.json asks for it, the container does not have it",
        ),
    )


def seccomp(subject: Subject) -> Row:
    profile = subject.filter
    row = Row(
        "seccomp",
        "enforced",
        source_of(subject, "seccomp"),
        "a filter",
        "seccomp(2) filter, set by the runtime",
        "system calls that programs do not need fail before the kernel looks at them",
        mismatch=weaker_live(
            subject,
            "seccomp",
            lambda spec, live: spec.seccomp and not live.seccomp,
            "config.json has a filter, and the runtime has not set one",
        ),
    )
    if not subject.effective().seccomp:
        warning = "every system call of the kernel can be made"
        return row._replace(state="off", holds="no filter", how="", meaning="", warning=warning)
    if profile is None:
        return row
    row = row._replace(holds=f"a filter that allows {allowed_count(profile)} calls")
    if allows_unknown(profile):
        return row._replace(
            state="partial",
            holds="a filter that allows every call which it does not name",
            warning="calls that the filter's author did not think of are allowed",
        )
    if risky := risky_calls(profile):
        warning = f"it allows calls that level restricted refuses: {listed(risky)}"
        return row._replace(state="partial", warning=warning)
    return row


def namespaces(subject: Subject) -> Row:
    found = subject.effective().namespaces or {}
    shared = [name for name in SHARED_NAMESPACES if not found.get(name, True)]
    own = [name for name in SHARED_NAMESPACES if found.get(name)]
    lost = [
        name
        for name in SHARED_NAMESPACES
        if (subject.spec.namespaces or {}).get(name) and name in shared
    ]
    return Row(
        "namespaces",
        "partial" if shared else "enforced",
        source_of(subject, "namespaces"),
        f"of its own: {listed(own)}" + (f"; this machine's: {listed(shared)}" if shared else ""),
        "namespaces(7)",
        "it sees its own processes, mounts, host name, queues and shared memory only"
        if not shared
        else "",
        "; ".join(SHARED_NAMESPACES[name] for name in shared),
        f"config.json asks for a namespace, the container is in this machine's: {listed(lost)}"
        if lost
        else "",
    )


def network(subject: Subject) -> Row:
    facts = subject.effective()
    own = bool((facts.namespaces or {}).get("network"))
    others = sorted(set(facts.interfaces or ()) - {LOOPBACK}) if own else []
    row = Row(
        "network",
        "enforced",
        source_of(subject, "namespaces"),
        "none but its own loopback",
        "a network namespace",
        "it reaches nobody: no internet, no local network, no service of this machine",
        mismatch=weaker_live(
            subject,
            "namespaces",
            lambda spec, live: (
                (spec.namespaces or {}).get("network")
                and not (live.namespaces or {}).get("network", True)
            ),
            "config.json asks for a network namespace, the container is in this machine's",
        ),
    )
    if not own:
        return row._replace(
            state="off",
            holds="this machine's network",
            how="no network namespace",
            meaning="",
            warning="it reaches the internet, the local network, every port on this machine's "
            "localhost, and its abstract unix sockets",
        )
    if others:
        return row._replace(
            state="partial",
            holds=f"of its own, with {listed(others)}",
            meaning="",
            warning=f"its network leads somewhere: {listed(others)}",
        )
    return row


def security_module(subject: Subject) -> Row | None:
    """AppArmor's profile or SELinux's label, where the machine has one of them."""
    label = subject.effective().label
    if label is None:
        return None
    loose = label.startswith("unconfined")
    asked = subject.spec.label
    return Row(
        "security_module",
        "off" if loose else "enforced",
        source_of(subject, "label"),
        label,
        "AppArmor or SELinux",
        "" if loose else "what this machine's policy says about that label holds as well",
        mismatch=f"config.json asks for {asked}"
        if asked and asked.split(" ")[0] != label.split(" ")[0]
        else "",
    )


def oom_score(subject: Subject) -> Row | None:
    score = subject.effective().oom_score_adj
    if score is None:
        return None
    return Row(
        "oom_score_adj",
        "enforced" if score >= 0 else "off",
        source_of(subject, "oom_score_adj"),
        str(score),
        "/proc/PID/oom_score_adj (proc(5))",
        "where memory runs out, it is not spared before others" if score >= 0 else "",
        "" if score >= 0 else "where memory runs out, the kernel spares it and ends others",
    )
