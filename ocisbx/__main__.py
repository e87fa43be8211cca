"""`python -m ocisbx`: the command line."""

from ocisbx.cli import main

if __name__ == "__main__":
    main()
