"""From a diagnosis to the knobs that are swept."""

from __future__ import annotations

import pytest

from tuner.cli.sweep_plan import advise
from tuner.diagnosis.levers import FEWER_SEQS, MORE_KV, MORE_SEQS, PREFIX_CACHE, SHORTER_CONTEXT
from tuner.diagnosis.model import Diagnosis, Lever, NodeResult, State
from tuner.search.sweep import towards
from tuner.targets.base import KnobRange

KNOBS = {
    "max_num_seqs": KnobRange(16, 1, 256, True),
    "chunk_size": KnobRange(512, 1, 8192, True),
    "gpu_memory_utilization": KnobRange(0.9, 0.1, 0.9, True),
    "enable_prefix_caching": KnobRange(False, 1, 0, False),
}


def diagnosis(*levers: Lever) -> Diagnosis:
    node = NodeResult("3a", "Sequence cap", State.WARNING, "it binds", levers=levers)
    return Diagnosis(0.0, 10.0, "t", "slotune", "traffic", "Sequence cap: it binds", (node,))


def test_the_named_knob_is_swept_in_its_direction() -> None:
    advice = advise(diagnosis(MORE_SEQS, PREFIX_CACHE), KNOBS, 4)
    seqs, caching = advice.axes
    assert (seqs.values[0], seqs.values[-1]) == (16, 64)
    assert list(seqs.values) == sorted(seqs.values)
    assert caching.values == (False, True)
    assert any("sweeping max_num_seqs=16," in told for told in advice.told)


def test_what_cannot_be_turned_is_told() -> None:
    advice = advise(diagnosis(MORE_KV, SHORTER_CONTEXT), KNOBS, 3)
    told = " ".join(advice.told)
    assert "it is at its bound (0.9)" in told
    assert "set when a server starts: --target … --knob max_model_len" in told
    assert [axis.name for axis in advice.axes] == [
        "max_num_seqs", "chunk_size", "gpu_memory_utilization",
    ]  # fmt: skip
    assert advise(diagnosis(MORE_SEQS), {}, 3).axes == ()
    assert "exports no metrics" in advise(None, KNOBS, 3).told[0]


@pytest.mark.parametrize(("direction", "ends"), [("up", (0.5, 0.9)), ("down", (0.5, 0.5))])
def test_a_share_stays_in_bounds(direction: str, ends: tuple[float, float]) -> None:
    axis = towards("gpu_memory_utilization", KnobRange(0.5, 0.1, 0.9, True), direction, 3)
    if direction == "down":  # the table's range ends there
        assert axis is None
    else:
        assert axis is not None
        assert (axis.values[0], axis.values[-1]) == ends


def test_fewer_goes_down() -> None:
    axis = advise(diagnosis(FEWER_SEQS), KNOBS, 3).axes[0]
    assert (axis.values[0], axis.values[-1]) == (4, 16)
