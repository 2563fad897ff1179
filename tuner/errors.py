"""Faults the user can mend. Everything else is a bug and keeps its traceback."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a state the user can change: printed as one sentence, exit code 2."""
