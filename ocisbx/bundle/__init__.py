"""Bundles: the directory that a runtime is given, and the record of who owns it."""
