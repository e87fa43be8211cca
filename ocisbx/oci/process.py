"""`process` of config.json (config.md, "Process")."""

from typing import Annotated, Literal

from pydantic import Field

from ocisbx.oci.base import Int32, Opt, SpecModel, Strings, Uint32, Uint64

IoPriorityClass = Literal["IOPRIO_CLASS_RT", "IOPRIO_CLASS_BE", "IOPRIO_CLASS_IDLE"]
SchedulerPolicy = Literal[
    "SCHED_OTHER",
    "SCHED_FIFO",
    "SCHED_RR",
    "SCHED_BATCH",
    "SCHED_ISO",
    "SCHED_IDLE",
    "SCHED_DEADLINE",
]
SchedulerFlag = Literal[
    "SCHED_FLAG_RESET_ON_FORK",
    "SCHED_FLAG_RECLAIM",
    "SCHED_FLAG_DL_OVERRUN",
    "SCHED_FLAG_KEEP_POLICY",
    "SCHED_FLAG_KEEP_PARAMS",
    "SCHED_FLAG_UTIL_CLAMP_MIN",
    "SCHED_FLAG_UTIL_CLAMP_MAX",
]
CpuList = Annotated[str, Field(pattern=r"^[0-9, -]*$")]


class ConsoleSize(SpecModel):
    """Size of the terminal in characters; ignored without `terminal`."""

    height: Uint64
    width: Uint64


class User(SpecModel):
    """Ids inside the container's user namespace; `umask` is a number, not an octal string."""

    uid: Opt[Uint32] = None
    gid: Opt[Uint32] = None
    umask: Opt[Uint32] = None
    additional_gids: Opt[tuple[Uint32, ...]] = None
    username: Opt[str] = None


class Capabilities(SpecModel):
    """Names as in capabilities(7); a set that is not given is empty."""

    bounding: Opt[Strings] = None
    effective: Opt[Strings] = None
    inheritable: Opt[Strings] = None
    permitted: Opt[Strings] = None
    ambient: Opt[Strings] = None


class Rlimit(SpecModel):
    """A limit of getrlimit(2), in that limit's own unit."""

    type: Annotated[str, Field(pattern=r"^RLIMIT_[A-Z]+$")]
    hard: Uint64
    soft: Uint64


class Scheduler(SpecModel):
    """Scheduling as in sched_setattr(2); `runtime`, `deadline` and `period` are nanoseconds."""

    policy: SchedulerPolicy
    nice: Opt[Int32] = None
    priority: Opt[Int32] = None
    flags: Opt[tuple[SchedulerFlag, ...]] = None
    runtime: Opt[Uint64] = None
    deadline: Opt[Uint64] = None
    period: Opt[Uint64] = None


class IoPriority(SpecModel):
    """I/O priority as in ioprio_set(2); `priority` is 0 (highest) to 7."""

    class_: IoPriorityClass
    priority: Opt[Int32] = None


class ExecCpuAffinity(SpecModel):
    """CPU lists for processes that a runtime execs, before and after they enter the cgroup."""

    initial: Opt[CpuList] = None
    final: Opt[CpuList] = None


class Process(SpecModel):
    """The container's process. `cwd` is an absolute path inside the container."""

    terminal: Opt[bool] = None
    console_size: Opt[ConsoleSize] = None
    user: Opt[User] = None
    args: Opt[Strings] = None
    command_line: Opt[str] = None
    env: Opt[Strings] = None
    cwd: str
    capabilities: Opt[Capabilities] = None
    rlimits: Opt[tuple[Rlimit, ...]] = None
    no_new_privileges: Opt[bool] = None
    apparmor_profile: Opt[str] = None
    oom_score_adj: Opt[int] = None
    scheduler: Opt[Scheduler] = None
    selinux_label: Opt[str] = None
    io_priority: Opt[IoPriority] = None
    exec_cpu_affinity: Opt[ExecCpuAffinity] = None
