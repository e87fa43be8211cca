"""What limits are checked against: processors, swap, and the disks that paths lie on.

Every reader takes the root below which the files lie, so that tests write files.
"""

from __future__ import annotations

import os
import re
import stat

from ocisbx.container.paths import is_below
from ocisbx.host import Disk, WeightFile

DEVICE = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def usable_cpus(cgroup: str, root: str = "/") -> str:
    """The processors that a cgroup below `cgroup` (its directory) can be given, as `0-3`.

    A cpuset that names others is taken by the kernel, and does not hold (cgroup-v2.rst).
    """
    while cgroup.startswith(f"{root.rstrip('/')}/sys/fs/cgroup"):
        if found := _text(f"{cgroup}/cpuset.cpus.effective"):
            return found
        cgroup = os.path.dirname(cgroup)
    return _text(f"{root.rstrip('/')}/sys/devices/system/cpu/online")


def swap_accounting(cgroup: str, root: str = "/") -> bool:
    """Whether the nearest cgroup that counts memory counts swap too; where none does: it may."""
    while cgroup.startswith(f"{root.rstrip('/')}/sys/fs/cgroup"):
        if os.path.exists(f"{cgroup}/memory.max"):
            return os.path.exists(f"{cgroup}/memory.swap.max")
        cgroup = os.path.dirname(cgroup)
    return True


def find_disk(key: str, root: str = "/") -> Disk:
    """The whole disk of MAJOR:MINOR, of a device's file, or of the file system below a path."""
    base = root.rstrip("/")
    if DEVICE.fullmatch(key):
        number = key
    else:
        try:
            info = os.stat(key)
        except (OSError, ValueError) as error:
            return Disk(trouble=(getattr(error, "strerror", None) or str(error)).lower())
        if stat.S_ISBLK(info.st_mode):
            number = _number(info.st_rdev)
        elif stat.S_ISCHR(info.st_mode):
            return Disk(trouble="it is a character device")
        else:
            number = _number(info.st_dev)
            if os.major(info.st_dev) == 0:
                kind, source = _mounted(key, f"{base}/proc/self/mountinfo")
                # Btrfs gives its files device numbers that no disk has.
                found = _block_number(source)
                if found is None:
                    return Disk(trouble=f"it lies on {kind}, which is no block device's")
                number = found
    place = f"{base}/sys/dev/block/{number}"
    if not os.path.exists(place):
        return Disk(trouble=f"there is no block device {number}")
    real = os.path.realpath(place)
    if os.path.exists(f"{real}/partition"):
        real = os.path.dirname(real)
    whole = _text(f"{real}/dev")
    return Disk(number=whole, weight_file=_weight_file(whole, real, base))


def _weight_file(number: str, directory: str, base: str) -> WeightFile:
    """What shares the disk among cgroups: the cost model where it is on, else its scheduler."""
    costs = _text(f"{base}/sys/fs/cgroup/io.cost.qos")
    if re.search(rf"^{re.escape(number)} enable=1\b", costs, re.MULTILINE):
        return "io.weight"
    if "[bfq]" in _text(f"{directory}/queue/scheduler"):
        return "io.bfq.weight"
    return ""


def _mounted(path: str, mountinfo: str) -> tuple[str, str]:
    """Type and source of what is mounted where `path` lies (proc_pid_mountinfo(5))."""
    real = os.path.realpath(path)
    best, found = "", ("an unknown file system", "")
    for line in _text(mountinfo).splitlines():
        fields = line.split(" ")
        point = _unescaped(fields[4])
        if is_below(real, point) and len(point) >= len(best):
            rest = fields[fields.index("-") + 1 :]
            best, found = point, (rest[0], _unescaped(rest[1]))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _block_number(path: str) -> str | None:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return _number(info.st_rdev) if stat.S_ISBLK(info.st_mode) else None


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""
