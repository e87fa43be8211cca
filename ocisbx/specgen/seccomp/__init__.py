"""Seccomp: our own profile as data, what it becomes in config.json, and profiles from files."""

from ocisbx.specgen.seccomp.file import load_profile
from ocisbx.specgen.seccomp.resolve import Clone3, default_profile

__all__ = ["Clone3", "default_profile", "load_profile"]
