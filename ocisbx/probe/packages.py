"""What the distribution says about a program of its own: holes that its package has closed.

A distribution fixes an old version without changing its number; Debian's changelog names the CVE.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib

PACKAGED = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")
CHANGELOG_LIMIT_BYTES = 1 << 22
# The first line of a changelog (deb-changelog(5)): "runc (1.1.5+ds1-1+deb12u1) bookworm; ..."
HEAD = re.compile(r"^(?P<package>\S+) \((?:\d+:)?(?P<version>[^)]+)\)")
CVE = re.compile(r"CVE-(\d{4}-\d{4,})")


def closed_holes(
    name: str, path: str, version: str, docs: str = "/usr/share/doc"
) -> frozenset[str]:
    """Ids ("2024-21626") in the changelog of the package that `path` comes from.

    Empty when it is none of the distribution's, or when its changelog is not installed or is of
    another version than the binary's own `version`.
    """
    if os.path.dirname(os.path.realpath(path)) not in PACKAGED:
        return frozenset()
    try:
        with gzip.open(f"{docs}/{name}/changelog.Debian.gz", "rt", errors="replace") as file:
            text = file.read(CHANGELOG_LIMIT_BYTES)
    except (OSError, EOFError, zlib.error):
        return frozenset()
    head = HEAD.match(text)
    if head is None or not head["version"].startswith(version):
        return frozenset()
    return frozenset(CVE.findall(text))
