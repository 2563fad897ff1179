"""Options that `tuner sweep` and `tuner optimize` share: knobs and the length of a measurement."""

from __future__ import annotations

import argparse

DEFAULT_POINTS = 5
"""Values of a range that is swept."""


def add_knob_option(group: argparse._ArgumentGroup, *, required: bool) -> None:
    """--knob, repeatable."""
    group.add_argument(
        "--knob",
        action="append",
        default=[],
        required=required,
        metavar="NAME=VALUES",
        help="values (max_num_seqs=10,20,40,80), a range (=8:256, =8:256:log) or =0.7..0.95",
    )


def add_measuring_options(group: argparse._ArgumentGroup) -> None:
    """--duration, --warmup, --quality."""
    group.add_argument(
        "--duration",
        metavar="TIME",
        help="measured window of one trial, e.g. 15s (default: fitted)",
    )
    group.add_argument(
        "--warmup", metavar="TIME", help="load before the window opens, e.g. 3s (default: fitted)"
    )
    group.add_argument(
        "--quality",
        metavar="FILE",
        help="tasks put to each configuration that may answer differently, for an accuracy SLO "
        "(docs/quality.md)",
    )


def add_constraint_option(group: argparse._ArgumentGroup) -> None:
    """--constraint, repeatable."""
    group.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="RULE",
        help='what knobs must keep to together, e.g. "chunk_size <= 64 * max_num_seqs"',
    )
