"""What a runtime keeps in its state directory (`--root`) for the containers to come.

Each of our containers has a state directory of its own, so crun would compile the same seccomp
filter for each of them, and each would make and delete the directory that masks others (measured:
a quarter of a start). So those entries are links to directories that all containers of this user
share.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from functools import lru_cache
from typing import TYPE_CHECKING

from ocisbx.places import bundle_names, ensure, find_places, locked, trusted
from ocisbx.plan import digest

if TYPE_CHECKING:
    from ocisbx.plan import Template
    from ocisbx.quirks import Quirks

PLANS_REMEMBERED = 64


def kept_state(quirks: Quirks, template: Template) -> dict[str, str]:
    """{name in the state directory: the directory that it is a link to}, made where missing.

    The bundle that will have the links must be there already. They lie beside the bundles: crun
    makes hard links from its cache into a container's state.

    Raises:
        OcisbxError, OSError: they cannot be made.
    """
    if not quirks.kept_state:
        return {}
    places = find_places()
    links = {}
    with locked(places.bundles, fcntl.LOCK_SH):
        parent = ensure(f"{ensure(places.kept)}/{quirks.name}-{_profile_digest(template)}")
        for name, mode in quirks.kept_state:
            path = links[name] = f"{parent}/{name}"
            if not os.path.isdir(path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path, mode)
                    os.chmod(path, mode)
    return links


def forget_kept_state() -> None:
    """Remove it all, unless there is a bundle: whoever starts now makes it again.

    A start has its bundle before it asks for kept state, and asks under the lock; so either its
    bundle is seen here, or it waits until this is done.
    """
    places = find_places()
    if not (trusted(places.runtime) and trusted(places.kept) and trusted(places.bundles)):
        return
    with locked(places.bundles, fcntl.LOCK_EX):
        if not bundle_names():
            import shutil  # noqa: PLC0415 -- 2 ms of every start, for what is rare

            # Of the path policy's covers one can be neither listed nor, so, deleted with the tree.
            with contextlib.suppress(OSError):
                os.rmdir(f"{places.kept}/covers/hidden")
            shutil.rmtree(places.kept, ignore_errors=True)


@lru_cache(PLANS_REMEMBERED)
def _profile_digest(template: Template) -> str:
    """crun's own key covers its version, libseccomp's, the kernel's and most of the profile, but
    no rule's errnoRet: profiles that differ share nothing here."""
    text = template.fill(root="", argv=("",), environment=[""])
    profile = json.loads(text).get("linux", {}).get("seccomp")
    return digest([json.dumps(profile).encode()])[:16]
