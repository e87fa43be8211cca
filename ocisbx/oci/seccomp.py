"""`linux.seccomp` of config.json (config-linux.md, "Seccomp")."""

from typing import Annotated, Literal

from pydantic import Field

from ocisbx.oci.base import Opt, SpecModel, Uint32, Uint64

SeccompAction = Literal[
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_TRAP",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_LOG",
    "SCMP_ACT_NOTIFY",
]
SeccompArch = Literal[
    "SCMP_ARCH_X86",
    "SCMP_ARCH_X86_64",
    "SCMP_ARCH_X32",
    "SCMP_ARCH_ARM",
    "SCMP_ARCH_AARCH64",
    "SCMP_ARCH_LOONGARCH64",
    "SCMP_ARCH_M68K",
    "SCMP_ARCH_MIPS",
    "SCMP_ARCH_MIPS64",
    "SCMP_ARCH_MIPS64N32",
    "SCMP_ARCH_MIPSEL",
    "SCMP_ARCH_MIPSEL64",
    "SCMP_ARCH_MIPSEL64N32",
    "SCMP_ARCH_PPC",
    "SCMP_ARCH_PPC64",
    "SCMP_ARCH_PPC64LE",
    "SCMP_ARCH_S390",
    "SCMP_ARCH_S390X",
    "SCMP_ARCH_SH",
    "SCMP_ARCH_SHEB",
    "SCMP_ARCH_PARISC",
    "SCMP_ARCH_PARISC64",
    "SCMP_ARCH_RISCV64",
]
SeccompFlag = Literal[
    "SECCOMP_FILTER_FLAG_TSYNC",
    "SECCOMP_FILTER_FLAG_LOG",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
]
SeccompOperator = Literal[
    "SCMP_CMP_NE",
    "SCMP_CMP_LT",
    "SCMP_CMP_LE",
    "SCMP_CMP_EQ",
    "SCMP_CMP_GE",
    "SCMP_CMP_GT",
    "SCMP_CMP_MASKED_EQ",
]


class SyscallArg(SpecModel):
    """A condition on argument number `index`; `value_two` is the operand of SCMP_CMP_MASKED_EQ."""

    index: Uint32
    value: Uint64
    value_two: Opt[Uint64] = None
    op: SeccompOperator


class Syscall(SpecModel):
    """What happens to the named system calls when all of `args` hold."""

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    action: SeccompAction
    errno_ret: Opt[Uint32] = None
    args: Opt[tuple[SyscallArg, ...]] = None


class Seccomp(SpecModel):
    """A filter; without `architectures` it holds for the host's native one only."""

    default_action: SeccompAction
    default_errno_ret: Opt[Uint32] = None
    architectures: Opt[tuple[SeccompArch, ...]] = None
    flags: Opt[tuple[SeccompFlag, ...]] = None
    listener_path: Opt[str] = None
    listener_metadata: Opt[str] = None
    syscalls: Opt[tuple[Syscall, ...]] = None
