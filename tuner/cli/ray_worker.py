"""One worker's sitting of a study that runs on a Ray cluster, as a program.

    python -m tuner.cli.ray_worker < ORDER

ORDER is what order_of has written, on stdin, where no process list shows its secrets.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tuner import interrupts
from tuner.cli.main import run_command
from tuner.cli.optimize import NAME

MODULE = "tuner.cli.ray_worker"
FAULT_MARK = f"tuner {NAME}: "
"""What the sentence begins with that a worker ends with."""


def order_of(args: argparse.Namespace, **changed: Any) -> str:
    """The options of the command that was called, with changes."""
    options = {name: value for name, value in vars(args).items() if name != "command"}
    return json.dumps(options | changed)


def main() -> int:
    from tuner.cli.run_optimize import run_sitting

    interrupts.own_process()
    args = argparse.Namespace(**json.load(sys.stdin))
    return run_command(NAME, lambda args: run_sitting(args, joins=True).exit_code, args)


if __name__ == "__main__":
    sys.exit(main())
