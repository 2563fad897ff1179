"""A runner without a model that keeps, for every KV slot, the token history that filled it.

Each step it checks that every slot a sequence attends to holds that sequence's own history, so
wrong sharing, stale hashes and early reuse are caught where they happen. Its "model" is a hash of
the whole history: any wrong token shows in all later ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from engine.scheduler.plan import ScheduledSeq, StepOutput, StepPlan

History = tuple[int, ...]


def next_token(history: Sequence[int], vocab: int = 50) -> int:
    """The token after history; a pure function, so outputs can be predicted."""
    return zlib.crc32(repr(tuple(history)).encode()) % vocab


def expected_output(prompt: Sequence[int], count: int, eos: int | None = None) -> list[int]:
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history))
        if history[-1] == eos:
            break
    return history[len(prompt) :]


class RecordingRunner:
    """Implements engine.core.Runner. `interrupt`, if set, is called once inside the next step."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, History] = {}
        self.plans: list[StepPlan] = []
        self.interrupt: Callable[[], object] | None = None

    def execute(self, plan: StepPlan) -> StepOutput:
        self.plans.append(plan)
        if self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()
        assert len({share.seq_id for share in plan.scheduled}) == len(plan.scheduled)
        histories = [(share, self._history(share)) for share in plan.scheduled]
        for share, history in histories:  # all writes of a step come before its reads' results
            for position in range(share.num_computed_tokens, len(history)):
                self.slots[self._slot(share, position)] = history[: position + 1]
        sampled = {}
        for share, history in histories:
            for position in range(len(history)):
                held = self.slots[self._slot(share, position)]
                assert held == history[: position + 1], f"slot of {share.seq_id} at {position}"
            if share.needs_sample:
                sampled[share.seq_id] = next_token(history)
        return StepOutput(sampled)

    def _history(self, share: ScheduledSeq) -> History:
        """The tokens the cache claims to hold before the step, and then the step's own."""
        if share.num_computed_tokens == 0:
            return tuple(share.token_ids)
        held = self.slots[self._slot(share, share.num_computed_tokens - 1)]
        assert len(held) == share.num_computed_tokens
        return (*held, *share.token_ids)

    def _slot(self, share: ScheduledSeq, position: int) -> int:
        block = share.block_table[position // self.block_size]
        return block * self.block_size + position % self.block_size
