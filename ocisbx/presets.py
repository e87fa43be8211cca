"""Presets and isolation levels: data only, in the shape (and the normal form) of SandboxConfig.

What a preset says are wishes where limits are concerned (a host that cannot enforce them says so
in the result); its isolation is as binding as the caller's own. `opens` states what the sandbox
can reach; the manual page ocisbx-presets(7) explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
MIB = 1 << 20

DEFAULT_PRESET = "coding-agent"

# Cheap wishes of every container. A core dump would land in the workspace, with what the process
# had in memory; programs that close every possible descriptor take minutes under a limit of 2^30.
RLIMITS: dict[str, tuple[int, int]] = {
    "RLIMIT_CORE": (0, 0),
    "RLIMIT_NOFILE": (65536, 65536),
}


def _rlimits(largest_file_bytes: int) -> dict[str, tuple[int, int]]:
    """And a bound on one file (SIGXFSZ, EFBIG), so that a runaway writer does not take the disk.

    The sparse files of databases and disk images count by their length. RLIMIT_NPROC is not here:
    it follows `pids` (container/limits.py).
    """
    return RLIMITS | {"RLIMIT_FSIZE": (largest_file_bytes, largest_file_bytes)}


class Protected(NamedTuple):
    """A path that a preset lets nobody write inside, with the reason.

    `pattern` is below the workspace, or (`~/`) below the caller's home where that is given.
    `missing`: what keeps the name free while it does not exist: nothing (None), an empty directory
    (""), or a file of this text where a directory would disturb the host's programs.
    """

    pattern: str
    missing: str | None
    reason: str


_EDITOR = "an editor runs tasks and starts programs that it names"
_AGENT = "an agent reads hooks, commands, servers and permissions there"
_SHELL = "a shell runs it at its start"

# What makes the host run code later (linux.md 2.7). Of git, what exists at the start is protected:
# a repository can still be made. `.git/commondir` sends git to another config and other hooks;
# with "." it means the repository itself, as without it (gitrepository-layout(5)).
PROTECTED: tuple[Protected, ...] = (
    Protected(".git/hooks", "", "git runs them"),
    Protected(".git/config", None, "core.fsmonitor, core.sshCommand, filters: git runs them"),
    Protected(".git/config.worktree", None, "as .git/config"),
    Protected(".git/commondir", ".", "names the directory of config and hooks"),
    Protected(".git/modules/*/hooks", None, "a submodule's hooks"),
    Protected(".git/modules/*/config", None, "a submodule's config"),
    Protected(".git/modules/*/commondir", None, "as .git/commondir"),
    Protected(".git/worktrees/*/commondir", None, "as .git/commondir"),
    Protected(".git/worktrees/*/config.worktree", None, "as .git/config"),
    Protected(".vscode", "", _EDITOR),
    Protected(".idea", "", _EDITOR),
    Protected(".zed", None, _EDITOR),
    Protected(".devcontainer", None, "an editor builds and starts what it describes"),
    Protected(".claude", "", _AGENT),
    Protected(".codex", "", _AGENT),
    Protected(".cursor", "", _AGENT),
    Protected(".gemini", "", _AGENT),
    Protected(".agents", "", _AGENT),
    Protected(".mcp.json", "", "an agent starts the servers that it names"),
    Protected(".envrc", "", "direnv runs it"),
    # Of what no shell reads outside of a home directory the usual names only: each costs 60 us.
    Protected(".bashrc", "", _SHELL),
    Protected(".bash_profile", None, _SHELL),
    Protected(".profile", "", _SHELL),
    Protected(".zshrc", "", _SHELL),
    Protected(".zprofile", None, _SHELL),
    Protected(".zshenv", None, _SHELL),
    Protected(".gitconfig", None, "as .git/config"),
    Protected("~/.bashrc", "", _SHELL),
    Protected("~/.bash_profile", "", _SHELL),
    Protected("~/.bash_login", "", _SHELL),
    Protected("~/.profile", "", _SHELL),
    Protected("~/.zshrc", "", _SHELL),
    Protected("~/.zprofile", "", _SHELL),
    Protected("~/.zshenv", "", _SHELL),
    Protected("~/.gitconfig", "", "as .git/config"),
    Protected("~/.config/fish", "", _SHELL),
    Protected("~/.config/git", "", "as .git/config"),
    Protected("~/.config/autostart", "", "a desktop starts what lies there"),
    Protected("~/.config/systemd/user", "", "systemd starts what lies there"),
    Protected("~/.ssh", "", "keys that open this machine, and commands that ssh runs"),
    Protected("~/.claude", "", _AGENT),
    Protected("~/.codex", "", _AGENT),
)


class Preset(NamedTuple):
    """`fields`: what SandboxConfig takes; `opens`: what a payload can reach, in one sentence;
    `protected`: what it cannot write, besides ocisbx's own code wherever there is any.

    `own_kernel`: never on the host's kernel, unless the caller names runtimes or allows it.
    """

    description: str
    opens: str
    fields: Mapping[str, Any]
    own_kernel: bool = False
    protected: tuple[Protected, ...] = PROTECTED


PRESETS: dict[str, Preset] = {
    "coding-agent": Preset(
        description="commands of a coding agent: edit, build and test the current directory",
        opens="the workspace for writing; the host's programs and libraries for reading",
        fields={
            "network": "none",
            "isolation": {"level": "restricted"},
            "limits": {"memory_bytes": 4 * GIB, "pids": 1024, "rlimits": _rlimits(64 * GIB)},
        },
    ),
    "balanced": Preset(
        description="as coding-agent, with the network and more room: installs and downloads",
        opens=(
            "what coding-agent opens, and the host's network: the internet, the local network, "
            "every port on localhost and, before Linux 6.12, the host's abstract unix sockets"
        ),
        fields={
            "network": "host",
            "isolation": {"level": "restricted"},
            "limits": {"memory_bytes": 8 * GIB, "pids": 4096, "rlimits": _rlimits(256 * GIB)},
        },
    ),
    "locked-down": Preset(
        description="code that nobody has read: nothing written, little used, soon over",
        opens="the workspace and the host's programs and libraries, for reading only",
        fields={
            "workspace": ":ro",
            "network": "none",
            "timeout_s": 600.0,
            "runtime": {"names": ("strongest",)},
            "isolation": {"level": "restricted"},
            "limits": {
                "memory_bytes": 1 * GIB,
                "cpus": 1.0,
                "pids": 256,
                # Only scratch memory can be written, and no tmpfs of ours is larger.
                "rlimits": _rlimits(1 * GIB),
            },
            "capture": {"max_bytes": 16 * MIB},
        },
        own_kernel=True,
    ),
    "yolo": Preset(
        description="a container for convenience, not for protection",
        opens=(
            "what balanced opens, the host's abstract unix sockets, a writable root (of this "
            "container only, where the root is a directory), the usual capabilities within its "
            "user namespace, and all of the machine's memory, processors and processes"
        ),
        fields={
            "network": "host",
            "isolation": {"level": "baseline", "read_only_root": False},
            "limits": {"rlimits": RLIMITS},
        },
        protected=(),
    ),
}


class Level(NamedTuple):
    """What an isolation level decides; every field but `landlock` can be overridden."""

    description: str
    capabilities: tuple[str, ...]
    seccomp: str
    no_new_privileges: bool
    masked_paths: tuple[str, ...]
    readonly_paths: tuple[str, ...]
    read_only_root: bool
    # Writing is confined once more, inside the mounts: see ocisbx-init(7).
    landlock: bool


# moby/profiles and moby oci/defaults.go (2026-06), as far as a path can name them: runtimes do not
# expand globs (thermal_throttle). Paths that a kernel does not have are skipped by the runtimes.
MASKED_PATHS: tuple[str, ...] = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
# Readable by everybody, tell about the host's kernel and disks, and no program of a sandbox asks.
MASKED_PATHS_RESTRICTED: tuple[str, ...] = (
    *MASKED_PATHS,
    "/proc/kallsyms",
    "/proc/key-users",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/mdstat",
    # Mode 0666: whoever opens it learns the whole host's load, and can make the kernel watch it.
    "/proc/pressure",
)
READONLY_PATHS: tuple[str, ...] = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)
# moby daemon/pkg/oci/caps/defaults.go: what docker gives a container.
DOCKER_CAPABILITIES: tuple[str, ...] = (
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)

# The levels bear the names of Kubernetes' Pod Security Standards, weakest first. Capabilities hold
# within the sandbox's own user namespace only.
ISOLATION_LEVELS: dict[str, Level] = {
    "privileged": Level(
        description="namespaces only: for nested containers and file systems, not for protection",
        capabilities=("ALL",),
        seccomp="none",
        no_new_privileges=False,
        masked_paths=(),
        readonly_paths=(),
        read_only_root=False,
        landlock=False,
    ),
    "baseline": Level(
        description="what docker gives a container, without gaining rights by setuid programs",
        capabilities=DOCKER_CAPABILITIES,
        seccomp="default",
        no_new_privileges=True,
        masked_paths=MASKED_PATHS,
        readonly_paths=READONLY_PATHS,
        read_only_root=False,
        landlock=False,
    ),
    "restricted": Level(
        description="no capabilities, every mask, a root that cannot be written",
        capabilities=(),
        seccomp="default",
        no_new_privileges=True,
        masked_paths=MASKED_PATHS_RESTRICTED,
        readonly_paths=READONLY_PATHS,
        read_only_root=True,
        landlock=True,
    ),
}
