"""Writes the table of keys in docs/tuner-toml.md from the parsers.

python scripts/tuner_toml_keys.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

DOCS = ROOT / "docs" / "tuner-toml.md"
HEAD = "| key | commands | takes |\n|---|---|---|\n"

NUMBERS = ("int", "float", "seed", "_seconds", "_count", "_gpus", "_cpus")
"""Names of argparse types that take a number."""


def table() -> str:
    """One row per key, in alphabetical order."""
    from tuner.cli.config_file import flags_of
    from tuner.cli.main import _build_parser

    _, parsers = _build_parser()
    rows: dict[str, tuple[list[str], argparse.Action]] = {}
    for name, parser in parsers.items():
        for flag, action in flags_of(parser).items():
            rows.setdefault(flag[2:].replace("-", "_"), ([], action))[0].append(name)
    lines = []
    for key, (commands, action) in sorted(rows.items()):
        told = "all" if len(commands) == len(parsers) else ", ".join(commands)
        lines.append(f"| `{key}` | {told} | {takes(action)} |\n")
    return HEAD + "".join(lines)


def takes(action: argparse.Action) -> str:
    """What a value of the key is."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "true or false"
    if isinstance(action, argparse._AppendAction):
        return "list of texts"
    named = getattr(action.type, "__name__", "")
    return "number" if named in NUMBERS else "text"


def main(words: list[str]) -> int:
    text = DOCS.read_text()
    wanted = text.partition(HEAD)[0] + table()
    if "--check" in words:
        return 0 if text == wanted else 1
    DOCS.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
