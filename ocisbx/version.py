"""The one place that names the version: read by hatchling, the CLI and the template cache."""

VERSION = "0.1.0"
