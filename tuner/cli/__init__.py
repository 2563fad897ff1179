"""The `tuner` command line; `main` is the entry point, one module per command."""

from tuner.cli.main import main

__all__ = ["main"]
