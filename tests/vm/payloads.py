"""Payloads that run into a limit, and payloads that only look like it, with their right verdicts.

Cheap ones: the test machine emulates its processor, so a payload is dash's builtins and at most a
few small programs. All limits stand around each of them: no verdict is right for want of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ocisbx.result import Termination as T

if TYPE_CHECKING:
    from collections.abc import Callable

    from ocisbx.result import RunResult

MIB = 1 << 20
PAGE = 4096
OUTPUT_BYTES = 1 << 16
# For what is not about time.
LONG_S = 600


class Room(NamedTuple):
    """What the payloads of a runtime are limited to.

    `own_kernel`: payloads are processes of a kernel in user space, which is what the host's kernel
    kills or refuses: all that is inside ends with it.
    """

    memory_bytes: int = 24 * MIB
    pids: int = 16
    # What a program can touch without running into the limit, most of it.
    nearly_bytes: int = 18 * MIB
    own_kernel: bool = False
    # Of the hasty ones, which a start and an `exit` fit into.
    timeout_ms: int = 500
    # As many as fit, beside the init and the payload itself.
    children: int = 14

    def fields(self, *, hasty: bool) -> dict[str, Any]:
        return {
            "limits": {"memory_bytes": self.memory_bytes, "pids": self.pids},
            "capture": {"max_bytes": OUTPUT_BYTES, "on_limit": "kill"},
            "timeout_s": self.timeout_ms / 1000 if hasty else LONG_S,
            "grace_s": 0.2,
            "env": {
                "set": {
                    "NEARLY": str(self.nearly_bytes),
                    "CHILDREN": str(self.children),
                    "TIMEOUT_MS": str(self.timeout_ms),
                }
            },
        }


class End(NamedTuple):
    """What a result says of a payload's end."""

    termination: T
    exit_code: int | None = None
    signal: int | None = None


def end_of(result: RunResult) -> End:
    return End(result.termination, result.exit_code, result.signal)


# ------------------------------------------------------------------- what else a result has to say
def killed(result: RunResult, room: Room) -> bool:
    """The kernel killed for memory, at the limit; single pages may be charged beyond it."""
    peak, kills = result.usage.memory_peak_bytes, result.usage.oom_kills
    assert peak is not None
    assert kills is not None
    return kills >= 1 and 0.9 * room.memory_bytes <= peak <= room.memory_bytes + 16 * PAGE


def spared(result: RunResult, _: Room) -> bool:
    return result.usage.oom_kills == 0


def filled(result: RunResult, room: Room) -> bool:
    """As many processes as may be."""
    return result.usage.pids_peak == room.pids and result.usage.oom_kills == 0


def nearly_filled(result: RunResult, room: Room) -> bool:
    """As many as fit; beside a kernel's own threads there is no knowing when it is the last."""
    if room.own_kernel:
        return (result.usage.pids_peak or 0) < room.pids and spared(result, room)
    return filled(result, room)


def killed_and_filled(result: RunResult, room: Room) -> bool:
    if room.own_kernel:
        # The first of both is its end.
        return filled(result, room)
    return killed(result, room) and result.usage.pids_peak == room.pids


def filled_and_cut(result: RunResult, room: Room) -> bool:
    return filled(result, room) and (room.own_kernel or cut(result, room))


def nearly_killed(result: RunResult, room: Room) -> bool:
    peak = result.usage.memory_peak_bytes or 0
    return result.usage.oom_kills == 0 and room.nearly_bytes <= peak <= room.memory_bytes


def cut(result: RunResult, _: Room) -> bool:
    return max(len(result.stdout), len(result.stderr)) == OUTPUT_BYTES


def whole(result: RunResult, _: Room) -> bool:
    return len(result.stdout) == OUTPUT_BYTES and not result.stdout_truncated


def one_or_the_other(result: RunResult, _: Room) -> bool:
    """No mixture: its own end after all that it wrote, or ours."""
    if end_of(result) == End(T.EXITED, exit_code=7):
        return result.stdout == b"done\n"
    ours = {b"", b"term\n", b"done\nterm\n", b"done\n"}
    return end_of(result) == End(T.TIMED_OUT) and result.stdout in ours


class Payload(NamedTuple):
    """A script of dash, how it ends, and what else its result has to say.

    `end` None: `also` alone tells. `own_end`: how it ends on a kernel of its own, where that
    differs; None: the same.
    """

    name: str
    script: str
    end: End | None
    also: Callable[[RunResult, Room], bool] = spared
    hasty: bool = False
    own_end: End | None = None

    def judge(self, result: RunResult, room: Room) -> str:
        """What is wrong with the result; empty: nothing."""
        end = self.own_end if room.own_kernel and self.own_end else self.end
        if end not in (None, end_of(result)):
            return "the verdict"
        return "" if self.also(result, room) else self.also.__name__


OOM = End(T.OOM_KILLED, signal=9)
LATE = End(T.TIMED_OUT)
DONE = End(T.EXITED, exit_code=0)
# Of a kernel in user space that was refused a thread.
REFUSED = End(T.PIDS_LIMIT, signal=9)

# Children that wait for good, and need no program for it: they read what nobody writes.
FIFO = "mkfifo /tmp/f; exec 9<>/tmp/f; "
CROWD = "while :; do read x <&9 & done"
BOMB = f"{FIFO}({CROWD}); "
PERL_CROWD = "while (1) { my $p = fork; last unless defined $p; sleep 600 unless $p }"
# 319: memfd_create(2) on x86-64.
PERL_MEMFD = (
    'my $n = "hog"; my $f = syscall(319, $n, 0); open(my $h, ">&=", $f) or exit 3; '
    'my $x = "x" x 1048576; while (1) { syswrite($h, $x) or exit 4 }'
)

HOGS = (
    Payload("a hog", "exec tail /dev/zero", OOM, killed),
    Payload("one buffer", "exec dd if=/dev/zero of=/dev/null bs=400M count=1", OOM, killed),
    Payload("the shell itself", "x=aaaaaaaa; while :; do x=$x$x$x$x; done", OOM, killed),
    Payload("/dev/shm", "exec dd if=/dev/zero of=/dev/shm/x bs=1M", OOM, killed),
    Payload("memfd", f"exec perl -e '{PERL_MEMFD}'", OOM, killed),
    Payload(
        "many hogs",
        "for i in 1 2 3; do tail /dev/zero & done; exec tail /dev/zero",
        OOM,
        killed,
    ),
    Payload(
        "a hog after a bomb",
        f"{BOMB} exec tail /dev/zero",
        OOM,
        killed_and_filled,
        own_end=REFUSED,
    ),
)
BOMBS = tuple(
    Payload(name, script, end, filled, own_end=REFUSED)
    for name, script, end in (
        ("a bomb", f"{FIFO}{CROWD}", End(T.PIDS_LIMIT, exit_code=2)),
        (
            "a bomb of programs",
            "while :; do sleep 600 & done",
            End(T.PIDS_LIMIT, exit_code=2),
        ),
        (
            "a bomb of orphans",
            f"{FIFO}set -e; while :; do (read x <&9 &); done",
            End(T.PIDS_LIMIT, exit_code=2),
        ),
        (
            "a bomb with a code of its own",
            f"exec perl -e '{PERL_CROWD} exit 11'",
            End(T.PIDS_LIMIT, exit_code=11),
        ),
        (
            "a bomb and a signal",
            f"exec perl -e '{PERL_CROWD} kill 6, $$; sleep 600'",
            End(T.PIDS_LIMIT, signal=6),
        ),
    )
)
SLEEPERS = tuple(
    Payload(name, script, LATE, also, hasty=True)
    for name, script, also in (
        ("a sleeper", "exec sleep 600", spared),
        ("deaf", f"{FIFO}trap '' TERM INT HUP; read x <&9", spared),
        ("stopped", "kill -STOP $$", spared),
        ("busy", "while :; do :; done", spared),
        ("cleans up", f"{FIFO}trap 'exit 0' TERM; while :; do read x <&9; done", spared),
        ("then says 137", f"{FIFO}trap 'exit 137' TERM; while :; do read x <&9; done", spared),
        ("a family", "setsid sleep 600 & (sleep 600 &); sleep 600", spared),
        (
            "a bomb that outlives the timeout",
            f"{FIFO}b() {{ while :; do b & done; }}; b & read x <&9",
            spared,
        ),
        ("its hog was killed", "tail /dev/zero; sleep 600", lambda *_: True),
    )
)
FLOODS = (
    *(
        Payload(name, script, End(T.OUTPUT_LIMIT), cut)
        for name, script in (
            ("a flood", "exec yes"),
            ("of errors", "exec yes >&2"),
            ("of zeros", "exec cat /dev/zero"),
            ("a child's flood", "yes & wait"),
            ("a deaf flood", "trap '' PIPE TERM; exec yes"),
            ("of both", "yes >&2 & exec yes"),
            ("a shell's flood", "while :; do echo 0123456789012345678901234567890123456789; done"),
        )
    ),
    Payload(
        "a flood after a bomb",
        f"{BOMB} exec yes",
        End(T.OUTPUT_LIMIT),
        filled_and_cut,
        own_end=REFUSED,
    ),
)
KINDS = (HOGS, BOMBS, SLEEPERS, FLOODS)

LOOKALIKES = (
    *(
        Payload(f"exit {code}", f"exit {code}", End(T.EXITED, exit_code=code))
        for code in (1, 2, 124, 125, 126, 127, 130, 137, 141, 255)
    ),
    *(
        Payload(f"kill -{number}", f"kill -{number} $$", End(T.SIGNALED, signal=number))
        for number in (2, 6, 9, 13, 15, 31, 64)
    ),
    Payload("137 in time", "exit 137", End(T.EXITED, exit_code=137), hasty=True),
    *(
        Payload(
            f"ends {early_ms} ms before the timeout",
            f"trap 'echo term; exit 5' TERM; n=$((TIMEOUT_MS - {early_ms})); "
            "sleep $((n / 1000)).$(printf %03d $((n % 1000))) & wait $!; echo done; exit 7",
            None,
            one_or_the_other,
            hasty=True,
        )
        for early_ms in (200, 100, 50, 30, 10, 0)
    ),
    Payload(
        "nearly a hog",
        "exec dd if=/dev/zero of=/dev/null bs=$NEARLY count=1",
        DONE,
        nearly_killed,
    ),
    Payload("its hog was killed, and 0", "tail /dev/zero; exit 0", DONE, killed, own_end=OOM),
    Payload(
        "its hog was killed, and 137",
        "tail /dev/zero; exit $?",
        End(T.EXITED, exit_code=137),
        killed,
        own_end=OOM,
    ),
    Payload(
        "its hog was killed, and SIGTERM",
        "tail /dev/zero; kill -15 $$",
        End(T.SIGNALED, signal=15),
        killed,
        own_end=OOM,
    ),
    Payload("a bomb, and 0", f"{BOMB} exit 0", DONE, filled, own_end=REFUSED),
    Payload(
        "nearly a bomb",
        # Beside the init and the shell.
        f"{FIFO}i=0; while [ $((i += 1)) -le $CHILDREN ]; do read x <&9 & done; exit 2",
        End(T.EXITED, exit_code=2),
        nearly_filled,
    ),
    Payload("nearly a flood", f"exec head -c {OUTPUT_BYTES} /dev/zero", DONE, whole),
)
