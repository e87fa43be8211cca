"""The exception tree: ocisbx's own failures and the runtime's, never a payload's end.

    OcisbxError
    ├── ConfigError        the configuration or the command line is wrong
    │   └── PolicyDenied   a policy of the caller forbids it
    ├── RuntimeMissing     no usable runtime on this host
    ├── RuntimeFailed      a runtime was there and failed before the payload could run
    ├── CgroupError        a limit cannot be put in place
    ├── Unsupported        this host or runtime cannot do what was demanded
    ├── BundleError        a bundle cannot be written, read or trusted
    ├── TerminalError      the terminal could not be handed over
    │   ├── ExpectTimeout
    │   └── ExpectEOF
    ├── InvalidState       the verb does not fit the container's state
    └── CommandFailed      raised by RunResult.check() only

Each carries `what` (lower case, no full stop, names the path or field), `why` (the runtime's or the
kernel's own words where they help), `remedy` (what to type or change) and `exit_code` (what the
command line ends with).
"""

from __future__ import annotations

EXIT_FAILED = 125
EXIT_UNAVAILABLE = 69


class OcisbxError(Exception):
    """Base of everything that ocisbx raises on purpose."""

    exit_code: int = EXIT_FAILED

    def __init__(
        self, what: str, *, why: str = "", remedy: str = "", exit_code: int | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from `args` alone when pickled (multiprocessing, executors);
        # the keyword-only parts would be lost.
        args = (type(self), self.what, self.why, self.remedy, self.exit_code)
        return (_rebuild, args, self.__dict__)

    def render(self) -> str:
        """One screen for a person: `ocisbx: WHAT: WHY`, then the remedy on lines of its own."""
        lines = [f"ocisbx: {self}"]
        if self.remedy:
            lines += ["  remedy: " + self.remedy.replace("\n", "\n          ")]
        return "\n".join(lines)


def _rebuild(
    kind: type[OcisbxError], what: str, why: str, remedy: str, exit_code: int
) -> OcisbxError:
    return kind(what, why=why, remedy=remedy, exit_code=exit_code)


class ConfigError(OcisbxError):
    """The configuration, a flag or an argument is wrong; nothing was started."""


class PolicyDenied(ConfigError):
    """A policy of the caller forbids this command."""


class RuntimeMissing(OcisbxError):
    """No runtime, or not the one that was named, can be used here."""


class RuntimeFailed(OcisbxError):
    """The runtime failed, hung or was killed before the payload's end could be known."""


class CgroupError(OcisbxError):
    """A limit cannot be put in place or a cgroup cannot be read."""


class Unsupported(OcisbxError):
    """What was demanded cannot be enforced here, and `allow_degraded` does not name it."""


class BundleError(OcisbxError):
    """A bundle cannot be written, read, or trusted."""


class TerminalError(OcisbxError):
    """The container's terminal could not be received or used."""


class ExpectTimeout(TerminalError):
    """The pattern did not appear in time."""


class ExpectEOF(TerminalError):
    """The output ended before the pattern appeared."""


class InvalidState(OcisbxError):
    """The verb does not fit the state that the container is in."""


class CommandFailed(OcisbxError):
    """The payload did not end with exit code 0; raised by `RunResult.check()` only."""
