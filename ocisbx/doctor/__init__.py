"""doctor: findings with remedies (`examine`), and what host and runtimes can do (`report`)."""

from ocisbx.doctor.examine import examine
from ocisbx.doctor.finding import Finding, Severity, exit_code, render
from ocisbx.doctor.inventory import render_report, report

__all__ = [
    "Finding",
    "Severity",
    "examine",
    "exit_code",
    "render",
    "render_report",
    "report",
]
