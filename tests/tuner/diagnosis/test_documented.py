"""docs/diagnosis.md names every node, every threshold with the value in force, and every experiment
with what was named in it."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.diagnosis_confusion import verdict
from tests.tuner.diagnosis.cases import signals
from tests.tuner.diagnosis.experiments import EXPERIMENTS, NOTHING
from tuner.diagnosis import diagnose
from tuner.diagnosis.thresholds import TABLE

PAGE = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text()


def test_every_threshold_is_documented_as_it_is() -> None:
    for row in TABLE.values():
        assert f"| `{row.name}` | {row.value:g} | {row.unit} | {row.source} |" in PAGE


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def confusion() -> tuple[int, list[str], list[list[str]]]:
    """(seeds, columns, rows) of the table as it was printed."""
    start = PAGE.index("| planted (")
    head, _, *rows = PAGE[start : PAGE.index("\n\n", start)].splitlines()
    seeds = re.match(r"\| planted \((\d+) seeds each\) \|", head)
    assert seeds is not None
    return int(seeds.group(1)), cells(head)[1:], [cells(row) for row in rows]


def test_the_confusion_matrix_holds_every_experiment_once_and_each_of_its_runs() -> None:
    seeds, columns, rows = confusion()
    assert [name for name, *_ in rows] == [experiment.name for experiment in EXPERIMENTS]
    expected = list(dict.fromkeys(experiment.node for experiment in EXPERIMENTS))
    assert columns[: len(expected)] == expected
    assert columns[-1] == "cleared"
    for name, *counts in rows:
        assert len(counts) == len(columns), name
        *named, cleared = (int(count or 0) for count in counts)
        assert sum(named) == seeds, name
        assert 0 <= cleared <= seeds, name


def test_the_shares_of_the_matrix_are_told_with_their_intervals() -> None:
    seeds, columns, rows = confusion()
    right = {
        experiment.name: int(counts[columns.index(experiment.node)] or 0)
        for experiment, (_, *counts) in zip(EXPERIMENTS, rows, strict=True)
    }
    ill = [e.name for e in EXPERIMENTS if e.node != NOTHING]
    healthy = [e.name for e in EXPERIMENTS if e.node == NOTHING]
    assert len(healthy) >= 3
    named = sum(right[name] for name in ill)
    assert verdict("planted causes named first", named, seeds * len(ill)) in PAGE
    called_ill = sum(seeds - right[name] for name in healthy)
    assert verdict("healthy runs called ill", called_ill, seeds * len(healthy)) in PAGE


def test_every_node_is_documented() -> None:
    keys = {node.key for node in diagnose(signals()).nodes}
    assert {key for key in keys if key not in PAGE} == set()
