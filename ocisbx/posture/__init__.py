"""What holds of a container: judged from /proc, config.json, and what the driver declared.

Pure: ocisbx.probe.container reads, ocisbx.backends.observe brings the two together.
"""
