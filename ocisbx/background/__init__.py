"""Containers in the background, each with a small supervisor process of its own; no daemon.

The caller resolves the plan and starts a supervisor (`launch`), which runs it as any other call is
run (`supervisor`), keeps what it writes and how it ends on disk (`bundle.record`, `ending`), and
answers whoever asks by a socket (`control`, `packets`). `container` is what callers hold of it.
"""
