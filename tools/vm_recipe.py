"""What the guests of the test machine are made of: packages, kernel, files, units."""

from dataclasses import dataclass

from tools.rootfs_recipe import Recipe

USER = "dev"
# Where the host puts what the guest itself needs of this tree, and our builds of the runtimes.
AGENT = "opt/ocisbx-vm"
RUNTIMES = "opt/runtimes/bin"
# Where `-p TREE:/home/dev/ocisbx` is importable, as with an editable installation.
TREE = "/home/dev/ocisbx"
RAM_MIB = 1536
CPUS = 2
DISK_BYTES = 4 << 30
# The initial RAM disk loads these and what they need; the rest is udev's.
DISK_MODULES = ("virtio_pci", "virtio_blk")

KERNEL_ARGUMENTS = (
    "root=/dev/vda rw console=ttyS0 quiet psi=1 panic=-1 "
    # What costs emulated time and protects nobody here; the TSC of an emulated CPU is steady.
    # On a busy host the emulated timer looks broken to the kernel's check of it.
    "mitigations=off tsc=reliable no_timer_check net.ifnames=0"
)


@dataclass(frozen=True)
class Guest:
    """A release of Debian: its codename and the version of its python3."""

    suite: str
    python: str

    @property
    def recipe(self) -> Recipe:
        """The packages, as tools/rootfs_packages takes them."""
        packages = (*_PACKAGES, *_MORE[self.suite])
        return Recipe(f"vm-{self.suite}", "", "minbase", packages, suite=self.suite)


GUESTS = {one.suite: one for one in (Guest("bookworm", "3.11"), Guest("trixie", "3.13"))}

_PACKAGES = (
    "busybox-static",  # the initial RAM disk
    "cron",
    "crun",
    "dbus-user-session",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "openssh-server",
    "procps",
    "python3",
    "runc",
    "sudo",
    "systemd-sysv",
    "udev",
    "uidmap",
)
_MORE = {"bookworm": ("runsc",), "trixie": ("runsc",)}

# The kernel's packages are unpacked, not installed: their scripts would build an initial RAM disk
# and a boot loader's menu.
_KERNEL = """\
set -e
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
cd "$1/boot"
kernel=$(apt-cache depends linux-image-cloud-$(dpkg --print-architecture) |
  sed -n 's/^ *Depends: \\(linux-[a-z]*-[0-9].*\\)/\\1/p')
apt-get -q -o APT::Sandbox::User=root download $kernel
for deb in *.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$1"; done
rm *.deb
"""
MMDEBSTRAP_OPTIONS = (
    *("--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*"),
    *("--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*"),
    f"--customize-hook={_KERNEL}",
)

# Their times pass while the guest is frozen, so that each restore would start them.
_TIMERS = (
    *("apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim"),
    *("systemd-tmpfiles-clean",),
)
_UNUSED = (
    *(f"{timer}.timer" for timer in _TIMERS),
    *("e2scrub_reap.service", "getty@tty1.service", "serial-getty@ttyS0.service"),
)
LINKS = {
    **{f"etc/systemd/system/{unit}": "/dev/null" for unit in _UNUSED},
    "etc/systemd/system/multi-user.target.wants/ocisbx-vm.service": "../ocisbx-vm.service",
}

# Commands are this service's children. An OOMScoreAdjust would be theirs too, and they could not
# raise it: with -1000 nothing is left to kill, and the guest hangs. One of them that the kernel
# kills must not end the agent.
_AGENT_UNIT = f"""\
[Unit]
Description=Agent of the test machine
After=systemd-logind.service systemd-user-sessions.service

[Service]
WorkingDirectory=/{AGENT}
ExecStart=/usr/bin/python3 -B -m tools.vm_agent
Restart=always
OOMPolicy=continue
KillMode=process
LimitNOFILE=65536
"""
_SSH = """\
Host localhost
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
_OCISBX = f"""\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "{TREE}")
from ocisbx.cli import main

sys.exit(main())
"""

# The path of a file, its mode and its text.
FILES: dict[str, tuple[int, str]] = {
    "etc/fstab": (0o644, "/dev/vda / ext4 defaults 0 0\n"),
    "etc/hostname": (0o644, "vm\n"),
    "etc/hosts": (0o644, "127.0.0.1 localhost vm\n::1 localhost\n"),
    # An empty one makes a first boot, which sets all units to their presets.
    "etc/machine-id": (0o444, "0c15b0000000400080000000000000e1\n"),
    "etc/resolv.conf": (0o644, ""),
    "etc/modules-load.d/ocisbx-vm.conf": (0o644, "overlay\n"),
    "etc/ssh/ssh_config.d/ocisbx-vm.conf": (0o644, _SSH),
    "etc/sudoers.d/ocisbx-vm": (0o440, f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n"),
    "etc/systemd/journald.conf.d/ocisbx-vm.conf": (0o644, "[Journal]\nStorage=volatile\n"),
    "etc/systemd/system/ocisbx-vm.service": (0o644, _AGENT_UNIT),
    # Debian's own hands out memory and pids, and cpu; what administrators add for containers.
    "etc/systemd/system/user@.service.d/delegate.conf": (
        0o644,
        "[Service]\nDelegate=cpu cpuset io memory pids\n",
    ),
    "usr/local/bin/ocisbx": (0o755, _OCISBX),
    f"var/lib/systemd/linger/{USER}": (0o644, ""),
}

# Run in the root, by its own programs.
COMMANDS = (
    f"useradd --create-home --shell /bin/bash {USER}",
    f"usermod --password '*' {USER}",
    f"install -d -m 700 -o {USER} -g {USER} /home/{USER}/.ssh",
    "install -d -m 700 /root/.ssh",
    f"ssh-keygen -q -t ed25519 -N '' -C {USER}@vm -f /home/{USER}/.ssh/id_ed25519",
    f"install -m 600 /home/{USER}/.ssh/id_ed25519.pub /home/{USER}/.ssh/authorized_keys",
    f"install -m 600 /home/{USER}/.ssh/id_ed25519.pub /root/.ssh/authorized_keys",
    f"chown -R {USER}:{USER} /home/{USER}/.ssh",
    f"touch /home/{USER}/.hushlogin /root/.hushlogin",
    "python3 -m compileall -q /usr/local/lib/python3.*/dist-packages",
)
