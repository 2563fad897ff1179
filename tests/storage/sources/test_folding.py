"""Gauges of several engines are added up; what several processes of one engine tell is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.sources import RecordedSource, promql
from storage.sources.base import REPLICA_LABELS, Agg, RangeKind
from storage.sources.exposition import SeriesId
from storage.sources.folding import fold_replicas

RUNNING = "vllm:num_requests_running"
START_S = 1_700_000_000.0


def page(*figures: tuple[str, int, int]) -> str:
    """(engine, pid, running) each."""
    return "".join(
        f'{RUNNING}{{engine="{engine}",pid="{pid}"}} {running}\n'
        for engine, pid, running in figures
    )


def source(*pages: str) -> RecordedSource:
    return RecordedSource([(START_S + 5.0 * i, text) for i, text in enumerate(pages)])


BOTH = page(("0", 11, 0), ("0", 12, 40), ("0", 13, 0), ("1", 21, 24), ("1", 22, 24))
"""Three processes tell of engine 0, two of them as idle; two tell the same of engine 1."""


def test_engines_are_added_and_processes_are_not() -> None:
    assert source(BOTH).gauge(RUNNING, agg="sum").value == 64
    assert source(BOTH).gauge(RUNNING, agg="max").value == 40
    parts = source(BOTH).breakdown(RUNNING, "engine")
    assert {engine: part.value for engine, part in parts.items()} == {"0": 40, "1": 24}


@pytest.mark.parametrize(("agg", "values"), [("sum", [64, 30]), ("max", [40, 30])])
def test_a_range_is_folded_as_asked(agg: Agg, values: list[float]) -> None:
    recorded = source(BOTH, page(("0", 11, 0), ("0", 12, 30)))
    kinds: tuple[RangeKind, ...] = ("gauge", "peak")
    for kind in kinds:
        points = recorded.range(
            kind, RUNNING, start_s=START_S, end_s=START_S + 5, step_s=5.0, window_s=4.0, agg=agg
        )
        assert [value for _, value in points] == values, kind


def test_parts_by_two_labels() -> None:
    recorded = source(
        f'{RUNNING}{{instance="a",engine="0"}} 1\n{RUNNING}{{instance="a",engine="1"}} 2\n'
        f'{RUNNING}{{instance="b",engine="0",pid="1"}} 4\n'
        f'{RUNNING}{{instance="b",engine="0",pid="2"}} 3\n'
    )
    by_both = recorded.breakdown(RUNNING, "instance,engine")
    assert {part: r.value for part, r in by_both.items()} == {"a/0": 1, "a/1": 2, "b/0": 4}
    by_one = recorded.breakdown(RUNNING, "instance")
    assert {part: r.value for part, r in by_one.items()} == {"a": 3, "b": 4}


def test_the_question_says_so() -> None:
    assert promql.gauge("x", {"job": "v"}, "max") == 'max(x{job="v"})'
    each = "max by (instance, engine, dp_rank, model_name)"
    assert promql.gauge("x", None, "sum") == f"sum({each} (x))"
    assert promql.breakdown("x", "reason", None, None) == (
        "sum by (reason) (max by (reason, instance, engine, dp_rank, model_name) (x))"
    )
    assert promql.subquery("a + b", 60, 2.5, before_s=40) == "(a + b)[60s:2500ms] offset 40s"


@given(
    st.dictionaries(
        st.tuples(*(st.sampled_from(["", "0", "1"]) for _ in REPLICA_LABELS), st.integers(0, 3)),
        st.floats(0, 1e6),
    )
)
def test_a_sum_is_no_less_than_the_greatest_and_no_more_than_all(
    figures: dict[tuple[str | int, ...], float],
) -> None:
    labels = (*REPLICA_LABELS, "pid")
    found = [
        (SeriesId("x", dict(zip(labels, map(str, key), strict=True))), value)
        for key, value in figures.items()
    ]
    total = fold_replicas(found, "sum")
    if total is None:
        assert figures == {}
        return
    assert max(figures.values()) <= total <= sum(figures.values()) * (1 + 1e-9)
    engines = {key[:-1] for key in figures}
    if len(engines) == len(figures):
        assert total == pytest.approx(sum(figures.values()))
