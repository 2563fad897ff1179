"""Two running engines behind one page, as replicas: one gets too much, or one is slow."""

from __future__ import annotations

import pytest

from tests.servers import Program
from tests.tuner.diagnosis.real_engine import (
    GOOD,
    Load,
    Watch,
    calm,
    levers,
    named_alone,
    turn,
)
from tests.tuner.diagnosis.real_faults import joined, starved
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.thresholds import Thresholds
from tuner.slo import parse_slos

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Pair = tuple[Program, Program]

UNEVEN = Thresholds({"uneven_warning": 2.5})
"""On a busy machine one of two engines takes half as long again as the other by itself."""

PATIENCE_S = 120.0
"""So long a control waits for a moment in which both are treated alike."""


def test_a_replica_that_gets_most_of_the_clients(pair: Pair) -> None:
    """Six places each, eleven clients here and one there; then six each."""
    urls = [engine.url for engine in pair]
    for url in urls:
        turn(url, **{**GOOD, "max_num_seqs": 6})
    moved = Load(urls[0], 5, 40, 200)
    with (
        Load(urls[0], 6, 40, 200).offered(), Load(urls[1], 1, 40, 200).offered(), moved.offered(),
        joined(urls) as url, Watch(url, ["ttft_p95<500ms"], UNEVEN) as watch,
    ):  # fmt: skip

        def too_much(found: Diagnosis) -> bool:
            full = found.node("3a.seq_cap").symptom_of == "7.load"
            return named_alone("7.load", found) and full and found.node("3").firing

        ill = watch.until(too_much)
        assert too_much(ill), ill.headline
        assert levers(ill, "7.load") == ["the router's policy (least loaded, prefix-aware)"]
        moved.url = urls[1]

        def even(found: Diagnosis) -> bool:
            return calm(found, "3", "7.load")

        healed = watch.until(even, PATIENCE_S)
        assert even(healed), healed.headline


def test_a_replica_whose_host_is_slow(pair: Pair) -> None:
    """The SLO is three times what both replicas take on this machine as it is now."""
    urls = [engine.url for engine in pair]
    for url in urls:
        turn(url, **GOOD)
    loads = [Load(url, 3, 300, 2, pause_s=1.0) for url in urls]
    with (
        loads[0].offered(), loads[1].offered(),
        joined(urls) as url, Watch(url, ["ttft_p95<60s"], UNEVEN) as watch,
    ):  # fmt: skip

        def even(found: Diagnosis) -> bool:
            return calm(found, "3", "7.slow")

        control = watch.until(even, PATIENCE_S)
        assert even(control), control.headline
        usual_s = watch.signals.value("ttft_p95")
        assert usual_s is not None
        watch.slos = parse_slos([f"ttft_p95<{3 * usual_s:.3f}s"])

        def slow(found: Diagnosis) -> bool:
            return named_alone("7.slow", found) and found.node("3").symptom_of == "7.slow"

        with starved(pair[1].process.pid):
            ill = watch.until(slow)
        assert slow(ill), ill.headline
        assert "the slow replica itself" in levers(ill, "7.slow")
        healed = watch.until(even, PATIENCE_S)
        assert even(healed), healed.headline
