"""docs/diagnosis.md names every node, and every threshold with the value in force."""

from __future__ import annotations

from pathlib import Path

from tests.tuner.diagnosis.cases import signals
from tuner.diagnosis import diagnose
from tuner.diagnosis.thresholds import TABLE

PAGE = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text()


def test_every_threshold_is_documented_as_it_is() -> None:
    for row in TABLE.values():
        assert f"| `{row.name}` | {row.value:g} | {row.unit} | {row.source} |" in PAGE


def test_every_node_is_documented() -> None:
    keys = {node.key for node in diagnose(signals()).nodes}
    assert {key for key in keys if key not in PAGE} == set()
