"""A package of one module and one command."""

import sys
from importlib.metadata import version


def main() -> None:
    print(f"hello {sys.argv[1]} from {version('greeter')}")
