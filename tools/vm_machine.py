"""QEMU: boot a guest, freeze it into a file, restore it; each machine ends with its owner."""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tools.rootfs_recipe import BuildError
from tools.vm_recipe import CPUS, KERNEL_ARGUMENTS, RAM_MIB
from tools.vm_wire import PORT

QEMU = "qemu-system-x86_64"
_STATE = "state.zst"
_FREEZE_LIMIT_S = 60
_NO_LIMIT = 1 << 50  # bytes a second; the default is that of a network


class Machine:
    """A running QEMU: `line` leads to the agent, `control` to QEMU itself (QMP)."""

    def __init__(
        self, process: subprocess.Popen[bytes], line: socket.socket, said: IO[bytes]
    ) -> None:
        self.line = line
        self._process = process
        self._said = said

    def what_happened(self) -> str:
        """Return what QEMU said; it is told apart from the agent's silence by its exit code."""
        code = self._process.poll()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()[-1000:]
        state = "is still running" if code is None else f"ended with {code}"
        return f"QEMU {state}: {said}" if said else f"QEMU {state}"

    def end(self) -> None:
        """End the machine as a power cut does; its disk's changes are thrown away anyway."""
        self._process.kill()
        self._process.wait()
        self.line.close()
        self._said.close()


def boot(directory: Path, console: str) -> tuple[Machine, socket.socket]:
    """Start a guest from its disk, which it writes to; the second value is QEMU's control line."""
    control, qemus_end = socket.socketpair()
    with qemus_end:
        arguments = [
            *["-chardev", f"socket,id=control,fd={qemus_end.fileno()}"],
            *["-mon", "chardev=control,mode=control"],
        ]
        machine = _start(directory, console, "off", arguments, qemus_end.fileno())
    return machine, control


@contextmanager
def restored(directory: Path, console: str) -> Iterator[Machine]:
    """Give a machine that goes on where the guest was frozen; its disk's changes are lost."""
    arguments = ["-incoming", f"exec:zstd -dcq {_STATE}"]
    machine = _start(directory, console, "on", arguments)
    try:
        yield machine
    finally:
        machine.end()


def freeze(control: socket.socket) -> None:
    """Write the guest's memory and devices to its directory; the guest stands still afterwards."""
    with control.makefile("rw") as line:
        _ask(line, "qmp_capabilities")
        _ask(line, "migrate-set-parameters", {"max-bandwidth": _NO_LIMIT})
        _ask(line, "migrate", {"uri": f"exec:zstd -q -f -3 -T2 -o {_STATE}"})
        end = time.monotonic() + _FREEZE_LIMIT_S
        while (now := _ask(line, "query-migrate")["status"]) != "completed":
            if now in {"failed", "cancelled"} or time.monotonic() > end:
                what = f"QEMU could not freeze the guest: {now}"
                raise BuildError(what)
            time.sleep(0.05)
        _ask(line, "quit")


def _start(
    directory: Path, console: str, snapshot: str, arguments: list[str], *descriptors: int
) -> Machine:
    ours, qemus = socket.socketpair()
    said = tempfile.TemporaryFile()  # noqa: SIM115  (the machine's, until its end)
    with qemus:
        # Relative names: QEMU's options and the shell of exec: have quoting rules of their own.
        command = [
            *["setpriv", "--pdeathsig", "KILL", QEMU, *_hardware(console, snapshot)],
            *["-chardev", f"socket,id=agent,fd={qemus.fileno()}", *arguments],
        ]
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            pass_fds=[qemus.fileno(), *descriptors],
            # A Ctrl-C is the command's: its signals come through the agent.
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"},
        )
    return Machine(process, ours, said)


def _hardware(console: str, snapshot: str) -> list[str]:
    """Return QEMU's options that a frozen guest must find again as they were."""
    log = f"file,id=console,path={console}" if console else "null,id=console"
    return [
        *["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"],
        *["-machine", "q35", "-accel", "tcg,thread=multi"],
        # `max` is taken for an old AMD CPU with an unsteady clock.
        *["-cpu", "Nehalem", "-smp", str(CPUS), "-m", str(RAM_MIB)],
        *["-kernel", "vmlinuz", "-initrd", "initrd", "-append", KERNEL_ARGUMENTS],
        *["-drive", f"file=disk.raw,format=raw,if=virtio,cache=unsafe,snapshot={snapshot}"],
        *["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"],
        *["-device", f"virtserialport,chardev=agent,name={PORT}"],
        *["-chardev", log, "-serial", "chardev:console"],
    ]


def _ask(line: IO[str], command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """Give QEMU one command and return its answer, passing over events."""
    line.write(json.dumps({"execute": command, "arguments": arguments or {}}) + "\n")
    line.flush()
    for text in line:
        answer = json.loads(text)
        if "error" in answer:
            what = f"QEMU refused {command}"
            raise BuildError(what, why=str(answer["error"].get("desc")))
        if "return" in answer:
            return dict(answer["return"])
    what = f"QEMU ended at {command}"
    raise BuildError(what)
