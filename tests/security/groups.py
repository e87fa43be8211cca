"""The groups of assertions, by the numbers of the project's reference (linux.md 4)."""

GROUPS: dict[tuple[int, int], str] = {
    (1, 10): "identity",
    (11, 22): "namespaces",
    (23, 31): "/proc, /sys and the kernel's log",
    (32, 42): "files",
    (43, 48): "descriptors and terminals",
    (49, 57): "system calls",
    (58, 65): "limits, and the end of a call",
    (66, 70): "from the host",
}
