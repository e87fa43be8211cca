"""`ocisbx bench`: launchers measured side by side, in turn, in one run (ocisbx-bench(1))."""
