"""The rules of [filesystem] as mounts: what is read-only, hidden or kept free, and why it holds.

A denied path is a mount of its own: read-only, so that nothing behind it is written, and a mount
point, which cannot be renamed, replaced or removed (rename(2), EBUSY). So that no directory above
it is moved away with it, each one up to the writable mount it lies in is bound onto itself: pinned.
Hard links do not lead across mounts (link(2), EXDEV). What does not exist is kept free by a
placeholder. Mounts are made parents first, so that of nested rules the innermost holds.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

from ocisbx.container.model import Bind, EnforcementEntry, HostSide
from ocisbx.container.paths import PATH_LIMIT_BYTES, is_below
from ocisbx.container.rules import allowed_paths, is_glob, led_to
from ocisbx.errors import ConfigError, Unsupported
from ocisbx.host import PathKind
from ocisbx.placeholder import Placeholder
from ocisbx.result import EnforcementState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ocisbx.container.model import Root, Tmpfs
    from ocisbx.container.rules import Rule, Verb
    from ocisbx.host import Host, Place

# In the bundle: what is mounted over a path that nobody may read, or that keeps a name free.
COVERS = "covers"
HIDDEN_DIRECTORY, HIDDEN_FILE = f"{COVERS}/hidden", f"{COVERS}/hidden-file"
FREE = {"": f"{COVERS}/empty", ".": f"{COVERS}/dot"}

MOUNT_LIMIT = 512

# Where two rules name one path, the higher one counts; the caller's before the preset's.
STRENGTH: dict[tuple[bool, Verb], int] = {
    (True, "deny_read"): 4,
    (True, "deny_write"): 3,
    (True, "allow_write"): 2,
    (False, "deny_write"): 1,
}
PIN = 0

HOW = "mounts over these paths; the directories above them cannot be moved"
GLOBS = "; globs cover what existed at the start"
NOTES_SHOWN = 5


class Wish(NamedTuple):
    """One path of one rule, at one place of the container; `free`: the name is to be kept free,
    by this content of a placeholder."""

    target: str
    path: str
    rule: Rule
    place: Place
    strength: int
    free: str | None = None


class PathPolicy(NamedTuple):
    """`binds`: all of the container's; `given`: those without the policy; `allowed`: those of it
    that make something writable; `selves`: whether it mounts paths of the host. `notes` (demanded
    or not, why): what does not wholly hold. `counts`: how many paths became what."""

    binds: tuple[Bind, ...]
    given: tuple[Bind, ...]
    allowed: tuple[Bind, ...]
    selves: bool
    placeholders: tuple[Placeholder, ...]
    notes: tuple[tuple[bool, str], ...]
    counts: dict[str, int]

    @property
    def host_side(self) -> HostSide:
        """Where the host's directories are mounted onto themselves, whoever writes in them could
        put a symlink there meanwhile: what is mounted then has to be verified."""
        given = [(bind.source, bind.target, not bind.read_only) for bind in self.given]
        given += [(bind.source, bind.target, True) for bind in self.allowed]
        return HostSide(
            placeholders=self.placeholders,
            covers=tuple(sorted({bind.source for bind in self.binds if _is_cover(bind)})),
            verified=tuple(given) if self.selves else (),
        )


def _is_cover(bind: Bind) -> bool:
    return not bind.source.startswith("/")


def apply_rules(
    rules: Sequence[Rule],
    host: Host,
    root: Root,
    mounts: tuple[Sequence[Bind], Sequence[Tmpfs]],
    given: Collection[str],
) -> PathPolicy:
    """The binds with those of `rules` among them. `given`: the sources that the caller named.

    Raises:
        ConfigError: rules contradict each other or the mounts.
    """
    binds, tmpfs = mounts
    if root.directory is not None:
        top = Bind(source=root.directory, target="/", read_only=root.read_only)
        binds = (top, *binds)
    sweep = _Sweep(binds, tmpfs, given)
    allowed = allowed_paths(rules, host.matches)
    wishes: dict[str, Wish] = {}
    for rule in rules:
        found = led_to(host, rule)
        if found.cut:
            sweep.note(rule, f"{rule.written}: {found.cut}")
        for place in found.places:
            # Who allows a path takes back what a preset denies in it.
            lifted = any(is_below(place.real, path) for path in allowed)
            if rule.origin == "caller" or not lifted:
                for wish in sweep.wishes(rule, place):
                    if wish.strength >= wishes.get(wish.target, wish).strength:
                        wishes[wish.target] = wish
    for target in sorted(wishes, key=lambda target: target.split("/")):
        sweep.act(wishes[target])
    return sweep.result(host)


def declare(
    rules: Sequence[Rule], preset: str, policy: PathPolicy, allow_degraded: Collection[str]
) -> dict[str, EnforcementEntry]:
    """The line of `enforcement`; none without rules.

    Raises:
        Unsupported: a rule of the caller's does not wholly hold, and `allow_degraded` names
            neither `filesystem` nor `all`.
    """
    if not rules:
        return {}
    demanded = [why for mine, why in policy.notes if mine]
    if demanded and not {"filesystem", "all"} & set(allow_degraded):
        raise Unsupported(
            "filesystem cannot be enforced here",
            why="; ".join(demanded[:NOTES_SHOWN]),
            remedy="change that, or go on without it: --allow-degraded filesystem",
        )
    asked = [f"{rule.verb} {rule.written}" for rule in rules if rule.origin == "caller"]
    if any(rule.origin == "preset" for rule in rules):
        asked.append(f"what the preset {preset} protects")
    if any(rule.origin == "own code" for rule in rules):
        asked.append("code of ocisbx")
    how = HOW + (GLOBS if any(is_glob(rule.written) for rule in rules) else "")
    notes = [why for _, why in policy.notes]
    more = f" (and {len(notes) - NOTES_SHOWN} more)" if len(notes) > NOTES_SHOWN else ""
    entry = EnforcementEntry(
        requested=", ".join(asked),
        actual=", ".join(f"{n} {what}" for what, n in policy.counts.items() if n)
        or "nothing to do",
        state=EnforcementState.PARTIAL if notes else EnforcementState.ENFORCED,
        how=how + ("; but " + "; ".join(notes[:NOTES_SHOWN]) + more if notes else ""),
    )
    return {"filesystem": entry}


class _Sweep:
    """The container's mounts while the rules are laid over them."""

    def __init__(
        self, binds: Sequence[Bind], tmpfs: Sequence[Tmpfs], given: Collection[str]
    ) -> None:
        self._first = tuple(binds)
        self._given = given
        self._mounts: dict[str, Bind | Tmpfs] = {one.target: one for one in tmpfs}
        self._mounts |= {one.target: one for one in binds}
        self._own: dict[str, Bind] = {}
        self._allowed: list[Bind] = []
        self._placeholders: dict[str, Placeholder] = {}
        self._notes: dict[tuple[bool, str], None] = {}
        self._counts = dict.fromkeys(("read-only", "hidden", "kept free", "writable"), 0)

    def note(self, rule: Rule, why: str) -> None:
        self._notes[rule.origin == "caller", why] = None

    # ------------------------------------------------------------------- from rules to wishes
    def wishes(self, rule: Rule, place: Place) -> Iterator[Wish]:
        """What one place of a rule asks for, wherever the container shows it."""
        strength = STRENGTH[rule.origin == "caller", rule.verb]
        if rule.verb == "deny_write":
            for link in place.links:
                for target in self._shown(link.path):
                    yield Wish(target, link.path, rule, place, PIN)
        if place.instead:
            yield from self._hold(rule, place)
            return
        free = self._content(rule, place)
        path = place.real if free is None else place.missing
        if free is None and place.kind is PathKind.MISSING:
            return
        if free is not None and not self._can_be_held(rule, place):
            return
        for target in self._shown(path):
            yield Wish(target, path, rule, place, strength, free)
        for bind in self._first:
            if path == bind.source or not is_below(bind.source, path):
                continue
            if rule.origin == "own code" and not bind.read_only:
                self.note(rule, f"{bind.source}, which you give, is code that ocisbx runs")
            if rule.verb == "deny_read" and not self._is_given(bind):
                yield Wish(bind.target, bind.source, rule, place, strength)

    def _hold(self, rule: Rule, place: Place) -> Iterator[Wish]:
        """Nothing can be in a file, as long as it stays one; who denies that itself asks more."""
        if rule.verb != "allow_write":
            held = rule._replace(verb="deny_write")
            strength = STRENGTH[rule.origin == "caller", held.verb]
            for target in self._shown(place.instead):
                yield Wish(target, place.instead, held, place, strength)

    def _content(self, rule: Rule, place: Place) -> str | None:
        """The content of the placeholder that keeps the name free; None: it is (or stays) real."""
        if not place.missing or rule.verb == "allow_write":
            return None
        if place.kind is PathKind.FILE and not rule.missing:
            return None
        return "" if place.kind is PathKind.DIRECTORY and not rule.missing else rule.missing

    def _can_be_held(self, rule: Rule, place: Place) -> bool:
        # A preset keeps names free in what is there: what is not can be made.
        if rule.origin != "caller" and place.missing != place.real:
            return False
        if place.parent == "closed" and self._shown(place.missing):
            self.note(rule, f"{rule.written} does not exist, and its directory is write-protected")
        return place.parent == "ours"

    def _is_given(self, bind: Bind) -> bool:
        return any(is_below(bind.source, source) for source in self._given)

    def _shown(self, path: str) -> list[str]:
        """Every place of the container at which a host path is to be seen."""
        found = []
        for bind in self._first:
            if is_below(path, bind.source):
                target = posixpath.normpath(
                    posixpath.join(bind.target, posixpath.relpath(path, bind.source))
                )
                if self._ground(target, self._mounts) is bind:
                    found.append(target)
        return found

    # -------------------------------------------------------------------- from wishes to mounts
    def _ground(self, target: str, mounts: dict[str, Bind | Tmpfs]) -> Bind | Tmpfs | None:
        """The innermost mount at or above `target`."""
        while target not in mounts and target != "/":
            target = posixpath.dirname(target)
        return mounts.get(target)

    def act(self, wish: Wish) -> None:
        ground = self._ground(wish.target, self._mounts)
        assert isinstance(ground, Bind), "only binds show paths of the host"
        if len(wish.target.encode()) > PATH_LIMIT_BYTES:
            self.note(wish.rule, f"{wish.rule.written} has a path that is too long to mount at")
        elif len(self._own) >= MOUNT_LIMIT:
            self.note(wish.rule, f"the rules need more than {MOUNT_LIMIT} mounts")
        elif wish.strength == PIN:
            if not ground.read_only:
                self._pin(wish.target, ground)
                path = wish.path
                self.note(wish.rule, f"{path} is a symlink: what it names is held, it is not")
        elif wish.rule.verb == "allow_write":
            self._allow(wish, ground)
        elif wish.target == ground.target and wish.rule.origin != "caller":
            if wish.rule.origin == "own code" and not ground.read_only:
                self.note(wish.rule, f"{ground.source}, which you give, is code that ocisbx runs")
        elif not ground.read_only or (wish.rule.verb == "deny_read" and not _is_cover(ground)):
            self._deny(wish, ground)

    def _allow(self, wish: Wish, ground: Bind) -> None:
        if _is_cover(ground):
            raise ConfigError(
                f"filesystem.allow_write: {wish.path} lies in what deny_read hides",
                remedy="leave one of the two out",
            )
        if ground.read_only:
            self._allowed.append(self._put(ground, wish, wish.path, read_only=False))
            self._counts["writable"] += 1

    def _deny(self, wish: Wish, ground: Bind) -> None:
        if not ground.read_only and wish.target != ground.target:
            self._pin(wish.target, ground)
        reads = wish.rule.verb == "deny_write"
        if wish.free is not None:
            self._placeholders[wish.path] = Placeholder(wish.path, wish.free)
            self._put(ground, wish, FREE[wish.free] if reads else HIDDEN_DIRECTORY)
            self._counts["kept free"] += 1
            return
        if wish.place.elsewhere:
            name = wish.place.elsewhere
            self.note(wish.rule, f"{name} has another name (a hard link) that may be reached")
        if reads:
            self._put(ground, wish, wish.path)
        else:
            directory = wish.place.kind is PathKind.DIRECTORY
            if wish.target == ground.target:
                directory = ground.directory
            self._put(ground, wish, HIDDEN_DIRECTORY if directory else HIDDEN_FILE)
        self._counts["read-only" if reads else "hidden"] += 1

    def _put(self, ground: Bind, wish: Wish, source: str, *, read_only: bool = True) -> Bind:
        whole = wish.place.kind is PathKind.DIRECTORY and source.startswith("/")
        bind = Bind(
            source=source,
            target=wish.target,
            read_only=read_only,
            directory=whole,
            idmap=ground.idmap and source.startswith("/"),
        )
        self._add(bind)
        return bind

    def _pin(self, target: str, ground: Bind) -> None:
        """Make mount points of the directories between `target` and the mount it lies in."""
        parent = posixpath.dirname(target)
        while parent != ground.target and is_below(parent, ground.target):
            below = posixpath.relpath(parent, ground.target)
            source = posixpath.join(ground.source, below)
            self._add(ground.model_copy(update={"source": source, "target": parent}))
            parent = posixpath.dirname(parent)

    def _add(self, bind: Bind) -> None:
        self._mounts[bind.target] = self._own[bind.target] = bind

    def result(self, host: Host) -> PathPolicy:
        kept = [bind for bind in self._first if bind.target not in self._own and bind.target != "/"]
        self._check_mount_points(kept, host)
        binds = sorted([*kept, *self._own.values()], key=lambda bind: bind.target.split("/"))
        return PathPolicy(
            binds=tuple(binds),
            given=self._first,
            allowed=tuple(self._allowed),
            selves=any(not _is_cover(bind) for bind in self._own.values()),
            placeholders=tuple(self._placeholders.values()),
            notes=tuple(self._notes),
            counts=self._counts,
        )

    def _check_mount_points(self, kept: Iterable[Bind], host: Host) -> None:
        """Where a mount lies in what became read-only, nobody can make its mount point."""
        others = [target for target in self._mounts if target not in self._own]
        for target in {*others, *(bind.target for bind in kept)} - {"/"}:
            ground = self._ground(posixpath.dirname(target), self._mounts)
            if ground is None or ground.target not in self._own or not isinstance(ground, Bind):
                continue
            path = posixpath.join(ground.source, posixpath.relpath(target, ground.target))
            fact = host.paths.get(path)
            gone = fact is not None and fact.kind is PathKind.MISSING
            if ground.read_only and (_is_cover(ground) or gone):
                raise ConfigError(
                    f"nothing can be mounted at {target}",
                    why=f"it does not exist, and [filesystem] denies {ground.target}",
                    remedy="make it on the host first, or mount it elsewhere",
                )
