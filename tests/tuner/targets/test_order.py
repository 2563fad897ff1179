"""Restarts are saved, and nothing else changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.targets.base import KnobRange
from tuner.targets.order import grouped, restarts

KNOBS = {
    "block_size": KnobRange(16, 1, 64, live=False),
    "enforce_eager": KnobRange(False, 1, 0, live=False),
    "chunk_size": KnobRange(512, 1, 8192, live=True),
}
CONFIGS = st.fixed_dictionaries({
    "block_size": st.sampled_from([8, 16, 32]), "enforce_eager": st.booleans(),
    "chunk_size": st.sampled_from([64, 128]),
})  # fmt: skip


@given(st.lists(CONFIGS, max_size=20))
def test_one_start_per_group(configs: list[dict[str, int]]) -> None:
    steps = list(enumerate(configs))
    order = grouped([(config, number) for number, config in steps], KNOBS)
    assert sorted(number for _, number in order) == list(range(len(configs)))
    starts = {(c["block_size"], c["enforce_eager"]) for c in configs}
    assert restarts([config for config, _ in order], KNOBS) == len(starts)
    if (16, False) in starts:  # what runs now comes first
        assert (order[0][0]["block_size"], order[0][0]["enforce_eager"]) == (16, False)


def test_true_and_one_are_two_settings() -> None:
    assert restarts([{"block_size": 1}, {"block_size": True}], KNOBS) == 2
