"""Where steps lie under the roofline, and what is concluded from it."""

from __future__ import annotations

import pytest

from tests.tuner.diagnosis.cases import PREFILL, SLOS, SLOW_TPOT, signals
from tuner.diagnosis import State, diagnose

KIND_S = {"prefill": 10.0, "decode": 10.0, "mixed": 0.0}
KIND_FLOPS = {"prefill": 6e13, "decode": 1e11, "mixed": 0.0}
KIND_BYTES = {"prefill": 1e10, "decode": 1.5e11, "mixed": 0.0}
BY_KIND = {"kind_s": KIND_S, "kind_flops": KIND_FLOPS, "kind_bytes": KIND_BYTES}


def test_roofline_by_kind_of_step() -> None:
    """Peaks 1e13 FLOP/s and 2e10 B/s: prefill lies right of the ridge, decode left of it; idle
    time of the window takes nothing off."""
    slow = diagnose(signals(**PREFILL, breakdowns=BY_KIND), SLOS)
    node = slow.node("3b.compute")
    assert node.value == pytest.approx(0.6)
    found = dict(node.evidence)
    assert found["prefill steps"].startswith("MFU 60%, MBU 5%, 6e+03 FLOP/B")
    assert found["prefill steps"].endswith("under the arithmetic roof")
    assert found["decode steps"].endswith("under the memory roof")
    assert slow.causes[0].key == "3b.compute"
    late = diagnose(signals(**SLOW_TPOT, breakdowns=BY_KIND), SLOS)
    assert late.node("4.bandwidth").value == pytest.approx(0.75)
    assert late.causes[0].key == "4.bandwidth"


def test_more_than_the_peak_is_not_concluded_from() -> None:
    diagnosis = diagnose(signals(**PREFILL | SLOW_TPOT, flops=3e13, read_bytes=9e10), SLOS)
    for key in ("3b.compute", "4.bandwidth"):
        node = diagnosis.node(key)
        assert node.state is State.CANT_TELL
        assert "too low" in node.summary


def test_a_full_bus_is_not_why_only_some_gaps_are_long() -> None:
    planted = SLOW_TPOT | {"itl_p50": 0.02, "itl_p99": 0.3, "step_tokens_p99": 500.0}
    diagnosis = diagnose(signals(**planted, read_bytes=1.6e10), SLOS)
    assert [cause.key for cause in diagnosis.causes] == ["4.interference"]
    assert "median gap of 20 ms is within" in diagnosis.node("4.bandwidth").summary


def test_a_peak_of_0_is_not_known() -> None:
    planted = PREFILL | {"peak_flops": 0.0, "peak_bytes": 0.0}
    node = diagnose(signals(**planted, breakdowns=BY_KIND), SLOS).node("3b.compute")
    assert node.state is State.CANT_TELL
    assert "--peak" in node.how_to_get
