"""The only reader of the host: sys.platform, $PATH, /proc and /sys."""
