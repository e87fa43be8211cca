"""Who may start processes, call C and look at the host; and that each rule fires when it should."""

from pathlib import Path

import pytest

from tests.meta.doors import DOORS, findings
from tests.meta.tree import ROOT, text

PACKAGE = ROOT / "ocisbx"

BAD = {
    "processes": [
        "import subprocess",
        "from subprocess import run",
        "import multiprocessing.pool",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "from os import posix_spawnp",
        "import os\npid = os.fork()",
        "import os\nos.execve('/bin/true', [], {})",
        "import os\nos.system('true')",
        "import os\nstart = os.spawnv",
        "import asyncio\nasync def go(): await asyncio.create_subprocess_exec('true')",
        "def go():\n    import pty",
    ],
    "system calls": [
        "import ctypes",
        "from cffi import FFI",
        "import _cffi_backend",
        "import ctypes.util",
    ],
    "host facts": [
        "import sys\nlinux = sys.platform == 'linux'",
        "from sys import platform",
        "import platform",
        "open('/proc/self/status')",
        "import os\nos.listdir('/sys/fs/cgroup')",
        "from pathlib import Path\nPath('/proc/sys/kernel').exists()",
        "pid = 1\nopen(f'/proc/{pid}/stat')",
        "import os\nos.environ['PATH']",
        "import os\nos.environ.get('PATH', '')",
        "import shutil\nshutil.which('runc')",
    ],
}
GOOD = [
    "import os\nos.read(0, 1)\nos.environ.get('HOME')\nos.open('/proc/self/fd/3', 0)",
    "MASKED = ('/proc/acpi', '/sys/firmware')\n'see subprocess and os.fork'",
    "def spawn(path): return path.open()",
]


def modules(door: str) -> list[Path]:
    keepers = DOORS[door].keepers
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") not in keepers
    ]


@pytest.mark.parametrize("door", DOORS)
def test_only_the_keeper_uses_the_door(door: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {offence}"
        for path in modules(door)
        for line, offence in findings(DOORS[door], text(path))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("door", "source"), [(door, bad) for door in BAD for bad in BAD[door]])
def test_a_rule_fires_on_a_bad_sample(door: str, source: str) -> None:
    assert findings(DOORS[door], source)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("source", GOOD)
def test_a_rule_leaves_a_good_sample_alone(door: str, source: str) -> None:
    assert not findings(DOORS[door], source)
