"""cgroups of ours: named `ocisbx-ID`, one for each container that a runtime gives one."""
