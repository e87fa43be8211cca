"""The distribution's own command that installs something."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MANAGERS: dict[str, str] = {
    "apt": "apt-get update && {sudo}apt-get install -y {packages}",
    "dnf": "dnf install -y {packages}",
    "apk": "apk add {packages}",
    "pacman": "pacman -S --needed {packages}",
    "zypper": "zypper install -y {packages}",
}

# ID or a word of ID_LIKE in os-release(5) -> its package manager.
DISTRIBUTIONS: dict[str, str] = {
    "debian": "apt",
    "ubuntu": "apt",
    "fedora": "dnf",
    "rhel": "dnf",
    "centos": "dnf",
    "amzn": "dnf",
    "alpine": "apk",
    "arch": "pacman",
    "suse": "zypper",
    "opensuse": "zypper",
    "opensuse-leap": "zypper",
    "opensuse-tumbleweed": "zypper",
}

# What `newuidmap` comes in.
UIDMAP_PACKAGES: dict[str, str] = {
    "apt": "uidmap",
    "dnf": "shadow-utils",
    "apk": "shadow-uidmap",
    "pacman": "shadow",
    "zypper": "shadow",
}


def manager(distributions: Sequence[str]) -> str | None:
    """The package manager of the first distribution that is known."""
    return next((DISTRIBUTIONS[name] for name in distributions if name in DISTRIBUTIONS), None)


def sudo(uid: int) -> str:
    return "" if uid == 0 else "sudo "


def install(packages: str, distributions: Sequence[str], uid: int) -> str:
    """A line for a shell that installs `packages`; without a known manager, words."""
    known = manager(distributions)
    if known is None:
        return f"install {packages} with this system's package manager"
    return sudo(uid) + MANAGERS[known].format(sudo=sudo(uid), packages=packages)


def install_newuidmap(distributions: Sequence[str], uid: int) -> str:
    """As `install`, for newuidmap."""
    return install(UIDMAP_PACKAGES[manager(distributions) or "apt"], distributions, uid)
