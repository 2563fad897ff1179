"""Rules and their tests as texts of files: YAML with a head that says how they were made.

Invariant: the text follows from the RuleSet alone, so that a test can compare a kept file with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tuner.rules.groups import RuleSet
from tuner.rules.unit_tests import unit_tests

RULES_FILE = "slo.rules.yml"
TESTS_FILE = "slo.test.yml"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def rules_text(rules: RuleSet, command: str, left_out: Mapping[str, str]) -> str:
    """The rules file."""
    notes = [f"{sli.clause.text}: {sli.bad_is}." for sli in rules.slis]
    notes += [f"{text} is left out: {why}." for text, why in left_out.items()]
    return _yaml([f"Made by: {command}", *notes], rules.groups())


def tests_text(rules: RuleSet, command: str) -> str:
    """promtool's unit tests of the rules file."""
    head = [f"Made by: {command}", f"Run: promtool test rules {TESTS_FILE}"]
    return _yaml(head, unit_tests(rules, RULES_FILE))


def _yaml(head: list[str], content: Mapping[str, Any]) -> str:
    body = yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return "".join(f"# {line}\n" for line in head) + body
