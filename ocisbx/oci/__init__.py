"""The runtime-spec's vocabulary for config.json, state and features, one file per document.

Rules are those of version 1.3.0; documents of 1.0.2 to 1.3.0 are read and written back equal.
"""

from ocisbx.oci.check import Kind, violations
from ocisbx.oci.config import Hook, Hooks, Mount, Root, Spec
from ocisbx.oci.features import Features
from ocisbx.oci.linux import Linux
from ocisbx.oci.process import Process
from ocisbx.oci.state import State
from ocisbx.oci.version import VERSIONS, Version, lowest_version
from ocisbx.oci.violation import DocumentError, Violation

__all__ = [
    "VERSIONS",
    "DocumentError",
    "Features",
    "Hook",
    "Hooks",
    "Kind",
    "Linux",
    "Mount",
    "Process",
    "Root",
    "Spec",
    "State",
    "Version",
    "Violation",
    "lowest_version",
    "violations",
]
