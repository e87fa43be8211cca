"""The options of `run` as tables: names, help, and which field of SandboxConfig each one sets."""

from __future__ import annotations

from ocisbx.cli.options import Option, Syntax


def _one(names: str, metavar: str, text: str = "") -> Option:
    return Option(tuple(names.split()), "one", metavar, text)


def _many(names: str, metavar: str, text: str = "") -> Option:
    return Option(tuple(names.split()), "many", metavar, text)


def _flag(names: str, text: str = "") -> Option:
    return Option(tuple(names.split()), "flag", "", text)


# docker's options for one disk each: the field of [limits.io] that they set.
DEVICE_LIMITS: dict[str, str] = {
    "device-read-bps": "read_bps",
    "device-write-bps": "write_bps",
    "device-read-iops": "read_iops",
    "device-write-iops": "write_iops",
}

# What decides the plan; the keys are those of Option.key.
CONTAINER: tuple[Option, ...] = (
    _one("--config", "FILE"),
    _one("--preset", "NAME"),
    _many("--runtime", "NAME"),
    _one("--platform", "NAME"),
    _one("--rootfs", "host|DIR"),
    _one("--workspace", "DIR[:ro]|none"),
    _many("-v --volume", "SRC[:DST][:ro]"),
    _many("--mount", "SPEC"),
    _many("--tmpfs", "DST[:size=N]"),
    _one("-w --workdir", "DIR"),
    _one("--network", "none|host"),
    _one("-m --memory", "SIZE"),
    _one("--memory-swap", "SIZE"),
    _one("--cpus", "N"),
    _one("--cpuset-cpus", "LIST"),
    _one("--pids-limit", "N"),
    *(_many(f"--{name}", "DEVICE:RATE") for name in DEVICE_LIMITS),
    _many("--ulimit", "NAME=SOFT[:HARD]"),
    _one("--timeout", "SECONDS"),
    _one("--grace", "SECONDS"),
    _one("--max-output", "BYTES"),
    _one("--on-output-limit", "truncate|kill"),
    _one("--max-sandboxes", "N"),
    _one("--wait", "SECONDS"),
    _flag("-t --tty"),
    _one("--isolation", "LEVEL"),
    _many("--cap-add", "NAME"),
    _many("--cap-drop", "NAME"),
    _one("--seccomp", "default|none|FILE"),
    _one("-u --user", "UID[:GID]"),
    _flag("--read-only"),
    _many("--allow-degraded", "NAME"),
    _one("--backend", "NAME"),
    _one("--image", "REF"),
)
# What belongs to one call, and is neither in the plan's name nor in the plan.
CALL: tuple[Option, ...] = (
    _many("-e --env", "K[=V]"),
    _many("--env-file", "FILE"),
    _flag("-i --interactive"),
    _one("--host", "FILE"),
    _one("--keep-bundle", "DIR"),
    _flag("--dry-run"),
    _flag("--json"),
    _one("--name", "NAME"),
    _flag("--no-audit"),
    _flag("-d --detach"),
    _one("--pool", "PATH"),
    _one("--transcript", "FILE"),
    _flag("--die-with-parent"),
    _flag("--posture"),
)

# Option: the field of SandboxConfig that its text becomes as it stands.
FIELDS: dict[str, str] = {
    "preset": "preset",
    "backend": "backend",
    "image": "image",
    "rootfs": "rootfs",
    "workspace": "workspace",
    "workdir": "workdir",
    "network": "network",
    "timeout": "timeout_s",
    "grace": "grace_s",
    "user": "user",
    "tty": "terminal",
    "platform": "runtime.platform",
    "runtime": "runtime.names",
    "memory": "limits.memory_bytes",
    "memory-swap": "limits.swap_bytes",
    "cpus": "limits.cpus",
    "cpuset-cpus": "limits.cpuset",
    "pids-limit": "limits.pids",
    "max-output": "capture.max_bytes",
    "on-output-limit": "capture.on_limit",
    "max-sandboxes": "concurrency.max",
    "wait": "concurrency.wait_s",
    "isolation": "isolation.level",
    "seccomp": "isolation.seccomp",
    "read-only": "isolation.read_only_root",
}
# Paths that may be given relative to the current directory, except for these words.
RELATIVE: dict[str, tuple[str, ...]] = {"rootfs": ("host",), "seccomp": ("default", "none")}

TEXT = """\
usage: ocisbx run [OPTIONS] [--] COMMAND [ARG...]

Run COMMAND in a fresh container, destroyed at the end. It may write the current
directory only.

  --preset NAME               coding-agent, or balanced, locked-down, yolo
  --config FILE               a sandbox as TOML, ocisbx-config(5); options win
  --runtime NAME|/PATH        auto, strongest, crun, runc, youki, runsc; again:
                              a list; --platform systrap|ptrace|kvm is runsc's
  --rootfs host|DIR           the system's programs, or an unpacked root
  --workspace DIR[:ro]|none   instead of the current directory
  -v, --volume SRC[:DST][:ro] show more of the host; where a path has a colon:
                              --mount type=bind,src=,dst=[,ro]
  --tmpfs DST[:size=N]        fresh memory; -w, --workdir DIR: where to start
  -e, --env K[=V]             K alone: your value; --env-file FILE
  --network none|host         default none; balanced and yolo have host
  -m, --memory SIZE           --memory-swap SIZE, --cpus N, --pids-limit N
  --device-read-bps DISK:RATE --device-write-bps, --device-read-iops,
                              --device-write-iops
  --ulimit NAME=SOFT[:HARD]   getrlimit(2); --cpuset-cpus LIST: ocisbx-limits(7)
  --timeout SECONDS           then TERM, and KILL after --grace SECONDS (2)
  --max-output BYTES          a stream (64M); --on-output-limit truncate|kill
  --max-sandboxes N           of yours at once; --wait SECONDS for a turn
  -i, --interactive           forward stdin, else it is empty
  -t, --tty                   a terminal; --transcript FILE of it (asciicast)
  --isolation LEVEL           privileged, baseline, restricted; --read-only
  --cap-add, --cap-drop NAME  capabilities(7); --seccomp default|none|FILE
  -u, --user UID[:GID]        who it is inside; default 0, which is you outside
  --allow-degraded NAME|all   go on where this host cannot enforce it
  --keep-bundle DIR           keep what was run; --backend auto|oci
  -d, --die-with-parent       in the background, prints the id; ends with you
  --name NAME, --posture      for ps and inspect; say what is withheld
  --dry-run, --host FILE      print config.json, run nothing
  --json, --no-audit          print one RunResult object; not in the log
  --pool PATH                 of `ocisbx pool serve`; not yet: --image

examples:
  ocisbx run -- make test
  ocisbx run --network host -v /opt/go:ro -e GOFLAGS -- go build ./...
  ocisbx run --timeout 10 --json -- python3 -c 'print(1)'
"""

RUN = Syntax(
    "ocisbx run [OPTIONS] [--] COMMAND [ARG...]",
    "",
    (*CONTAINER, *CALL),
    command=True,
    page=TEXT,
)
