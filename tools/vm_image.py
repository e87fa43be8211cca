"""Makes a guest's disk out of its packages: run in namespaces of its own by tools/vm_build.py.

As root there (of the machine, or of a user namespace), with the tree in a tmpfs that goes with this
process, however it ends.
"""

import json
import lzma
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.vm_recipe import (
    AGENT,
    COMMANDS,
    DISK_BYTES,
    DISK_MODULES,
    FILES,
    GUESTS,
    LINKS,
    RUNTIMES,
    TREE,
)

_TOOLS = Path(__file__).resolve().parent
_AGENT_MODULES = ("vm_agent.py", "vm_contexts.py", "vm_wire.py")
_INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do /bin/busybox insmod $module; done
until [ -e /dev/vda ]; do /bin/busybox sleep 0.05; done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""


@dataclass(frozen=True)
class Plan:
    """What the disk is made of, and the directory that gets disk.raw, vmlinuz and initrd."""

    suite: str
    packages: str
    site: str
    runtimes: dict[str, str]
    target: str
    mount: str

    def argument(self) -> str:
        """Return the plan as this program takes it."""
        return json.dumps(asdict(self))


def main() -> None:
    """Make the disk that the plan in the first argument describes."""
    plan = Plan(**json.loads(sys.argv[1]))
    mount, target = Path(plan.mount), Path(plan.target)
    _call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(mount))
    root = mount / "root"
    root.mkdir()
    # Device nodes cannot be made here; the guest's /dev is a devtmpfs.
    _call("tar", "-xf", plan.packages, "-C", str(root), "--exclude=./dev/*", "--numeric-owner")
    _add_files(root)
    _add_site(root, plan)
    _add_runtimes(root, plan.runtimes)
    with _devices(root):
        for command in COMMANDS:
            _call("chroot", str(root), "sh", "-c", command)
    _add_kernel(root, mount / "initrd", target)
    disk = target / "disk.raw"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    # No journal: the disk is thrown away after each use.
    _call("mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", "-d", str(root), str(disk))


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def _devices(root: Path) -> Iterator[None]:
    """Lend the root the machine's own devices that its programs insist on."""
    lent = {Path("/dev", name): root / "dev" / name for name in ("null", "urandom", "zero")}
    for device, place in lent.items():
        place.touch()
        _call("mount", "--bind", str(device), str(place))
    yield
    for place in lent.values():
        _call("umount", str(place))
        place.unlink()


def _add_files(root: Path) -> None:
    for name, (mode, text) in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(mode)
    for name, link in LINKS.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(link)
    agent = root / AGENT / "tools"
    agent.mkdir(parents=True)
    for name in _AGENT_MODULES:
        shutil.copyfile(_TOOLS / name, agent / name)
    for name in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(root / name, ignore_errors=True)


def _add_site(root: Path, plan: Plan) -> None:
    """Add the Python packages of the tests, and the tree as an editable installation would."""
    version = GUESTS[plan.suite].python
    site = root / "usr/local/lib" / f"python{version}" / "dist-packages"
    shutil.copytree(plan.site, site, dirs_exist_ok=True, symlinks=True)
    (site / "ocisbx-tree.pth").write_text(f"{TREE}\n")


def _add_runtimes(root: Path, runtimes: dict[str, str]) -> None:
    """Copy each runtime to the host's own path: the tree's links and crun's loader name that."""
    links = root / RUNTIMES
    links.mkdir(parents=True)
    for name, program in runtimes.items():
        folder = Path(program).parent
        copy = root / folder.relative_to("/")
        if (folder / ".complete").exists():
            shutil.copytree(folder, copy, symlinks=True)
        else:
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(program, copy)
        (links / name).symlink_to(program)


# ------------------------------------------------------------------ kernel and initial RAM disk


def _add_kernel(root: Path, tree: Path, target: Path) -> None:
    (kernel,) = root.glob("boot/vmlinuz-*")
    version = kernel.name.removeprefix("vmlinuz-")
    _call("chroot", str(root), "depmod", version)
    shutil.copyfile(kernel, target / "vmlinuz")
    for name in ("bin", "dev", "modules", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", tree / "bin/busybox")
    (tree / "init").write_text(_INIT)
    (tree / "init").chmod(0o755)
    for number, module in enumerate(_load_order(root / "lib/modules" / version)):
        data = module.read_bytes()
        if module.suffix == ".xz":  # busybox has no unpacker that insmod could use
            data = lzma.decompress(data)
        name = module.name.removesuffix(".xz")
        (tree / "modules" / f"{number:02}-{name}").write_bytes(data)
    listed = "\n".join(str(one.relative_to(tree)) for one in sorted(tree.rglob("*")))
    with (target / "initrd").open("wb") as archive:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"],
            cwd=tree,
            input=listed.encode(),
            stdout=archive,
            check=True,
        )


def _load_order(modules: Path) -> Iterator[Path]:
    """Yield the modules of the disk, each after those that it needs."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {Path(path).name.partition(".")[0]: path for path in needs}
    done: set[str] = set()
    for name in DISK_MODULES:
        if name not in by_name:
            continue  # built into the kernel
        path = by_name[name]
        # modules.dep names the nearest need first, the farthest last.
        for one in (*reversed(needs[path]), path):
            if one not in done:
                done.add(one)
                yield modules / one


if __name__ == "__main__":
    main()
