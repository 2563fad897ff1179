"""docs/diagnosis.md names every node, and every threshold with the value in force."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.diagnosis_confusion import verdict
from tests.tuner.diagnosis.cases import signals
from tuner.diagnosis import diagnose
from tuner.diagnosis.thresholds import TABLE

PAGE = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text()


def test_every_threshold_is_documented_as_it_is() -> None:
    for row in TABLE.values():
        assert f"| `{row.name}` | {row.value:g} | {row.unit} | {row.source} |" in PAGE


def test_the_share_of_right_causes_is_told_with_its_interval() -> None:
    rows = re.findall(r"^\|.*\| (\d+) \|$", PAGE.split("| planted (5 seeds each) |")[1], re.M)
    assert verdict(60, 5 * len(rows)) in PAGE
    assert "60 of 60 runs: 100% [94%, 100%]" in PAGE


def test_every_node_is_documented() -> None:
    keys = {node.key for node in diagnose(signals()).nodes}
    assert {key for key in keys if key not in PAGE} == set()
