"""Random lives of requests: whatever arrives, is aborted or reconfigured, the books balance and
every answer is right. The state machine shrinks a failure to the few moves that cause it."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from engine.config import SchedulerConfig
from engine.kvcache import prefix_hash
from tests.engine.scheduler.world import World

HEADS = [[random.Random(seed).randrange(9) for _ in range(40)] for seed in range(2)]
"""Common beginnings of prompts."""

seats = st.integers(1, 6)
anyone = st.integers(0, 30)


class SchedulerLives(RuleBasedStateMachine):
    """Every move that the service, an operator or the model can make."""

    @initialize(
        num_seqs=seats,
        spare_tokens=st.integers(0, 34),
        num_blocks=st.integers(2, 24),
        block_size=st.sampled_from([1, 4, 16]),
        caching=st.booleans(),
        threshold=st.sampled_from([None, 5]),
    )
    def begin(
        self,
        num_seqs: int,
        spare_tokens: int,
        num_blocks: int,
        block_size: int,
        caching: bool,
        threshold: int | None,
    ) -> None:
        self.world = World(
            SchedulerConfig(
                max_num_seqs=num_seqs,
                chunk_size=num_seqs + spare_tokens,
                max_model_len=100,
                block_size=block_size,
                num_kv_blocks=num_blocks,
                enable_prefix_caching=caching,
                long_prefill_token_threshold=threshold,
            )
        )

    @rule(
        head=st.sampled_from(HEADS),
        length=st.integers(0, 40),
        tail=st.lists(st.integers(0, 8), max_size=8),
        max_tokens=st.one_of(st.none(), st.integers(1, 20)),
        salt=st.sampled_from(["", "tenant"]),
    )
    def arrive(
        self, head: list[int], length: int, tail: list[int], max_tokens: int | None, salt: str
    ) -> None:
        self.world.arrive(head[:length] + tail, max_tokens, salt)

    @rule(times=st.integers(1, 4))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.world.step()

    @rule(index=anyone)
    def abort(self, index: int) -> None:
        self.world.abort(index)

    @rule(index=anyone)
    def abort_inside_a_step(self, index: int) -> None:
        self.world.interrupt(index)

    @rule(index=anyone)
    def stop(self, index: int) -> None:
        self.world.stop(index)

    @rule(num_seqs=seats, spare_tokens=st.integers(0, 34), share=st.floats(0.05, 1))
    def reconfigure(self, num_seqs: int, spare_tokens: int, share: float) -> None:
        cap = max(1, int(share * self.world.config.num_kv_blocks))
        self.world.reconfigure(num_seqs, num_seqs + spare_tokens, cap)

    @rule()
    def reset_prefix_cache(self) -> None:
        self.world.scheduler.reset_prefix_cache()
        self.world.scheduler.check_integrity()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()


TestSchedulerLives = SchedulerLives.TestCase
TestSchedulerLives.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def crowded_game(seed: int, *, num_blocks: int) -> World:
    """Far more work than the pool holds, prompts with few beginnings; follows from the seed."""
    rng = random.Random(seed)
    world = World(
        SchedulerConfig(
            max_num_seqs=6,
            chunk_size=rng.randint(6, 40),
            max_model_len=100,
            block_size=4,
            num_kv_blocks=num_blocks,
        )
    )
    for _ in range(20):
        tail = [rng.randrange(9) for _ in range(rng.randint(0, 8))]
        world.arrive(rng.choice(HEADS)[: rng.randint(1, 30)] + tail, rng.randint(1, 20))
        if rng.random() < 0.1:
            world.abort(rng.randrange(20))
        world.step()
    world.drain()
    return world


def test_outputs_are_right_when_every_hash_collides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_hash, "block_hash", lambda *_: 7)
    hits = 0
    for seed in range(40):
        world = crowded_game(seed, num_blocks=20)
        hits += sum(s.num_cached_tokens for s in world.sequences.values())
    assert hits > 0, "the one findable block should still be shared by its own prefix"


def test_crowded_games_preempt_and_hit_the_prefix_cache() -> None:
    preempted = hits = 0
    for seed in range(40):
        world = crowded_game(seed, num_blocks=20)
        preempted += sum(s.num_preemptions for s in world.sequences.values())
        hits += sum(s.num_cached_tokens for s in world.sequences.values())
    assert preempted > 10
    assert hits > 100
