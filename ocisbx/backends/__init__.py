"""Backends: how a resolved container is lowered and driven. On Linux: `oci`, the direct driver."""
