"""Random lives of requests: whatever arrives, is aborted or reconfigured, the books balance."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.errors import RequestError
from engine.kvcache import prefix_hash
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from tests.engine.scheduler.recording_runner import RecordingRunner, expected_output


@dataclass
class World:
    """A core with a recording runner, and what its clients have received."""

    config: SchedulerConfig
    now_s: float = 0.0
    received: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    sequences: dict[str, Sequence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.config, frozenset(), self.clock)
        self.runner = RecordingRunner(self.config.block_size)
        self.core = EngineCore(self.scheduler, self.runner, self.clock)

    def clock(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def add(self, prompt: list[int], max_tokens: int, salt: str = "") -> None:
        request_id = f"r{len(self.sequences)}"
        sequence = Sequence(
            request_id, prompt, SamplingParams(max_tokens=max_tokens), self.now_s, salt
        )
        self.sequences[request_id] = sequence
        self.received[request_id] = []
        try:
            self.core.add_request(sequence)
        except RequestError as error:
            assert error.status == 400
            self.ended[request_id] = "refused"

    def step(self) -> None:
        limits = self.scheduler.config
        before, running_before = len(self.runner.plans), len(self.scheduler.running)
        result = self.core.step()
        for event in result.events:
            self.received[event.request_id].append(event.token_id)
        for done in result.finished:
            assert done.request_id not in self.ended
            self.ended[done.request_id] = done.finish_reason
        for plan in self.runner.plans[before:]:
            assert plan.num_scheduled_tokens <= limits.chunk_size
            assert plan.num_scheduled_tokens == sum(len(s.token_ids) for s in plan.scheduled)
            assert len(plan.scheduled) <= max(limits.max_num_seqs, running_before)
        self.scheduler.check_integrity()

    def drain(self) -> None:
        for _ in range(5_000):
            if not self.core.has_work:
                break
            self.step()
        self.step()  # what ended outside a step is reported by the next one
        assert not self.core.has_work, "requests never end"
        assert set(self.ended) == set(self.sequences)
        assert self.scheduler.pool.num_used == 0

    def check_outputs(self) -> None:
        for request_id, sequence in self.sequences.items():
            if self.ended[request_id] == "length":
                count = sequence.sampling.max_tokens or 0
                assert self.received[request_id] == expected_output(
                    sequence.prompt_token_ids, count
                )


def play(seed: int, *, num_blocks: int, block_size: int, caching: bool) -> World:
    """A random game; its moves follow from the seed."""
    rng = random.Random(seed)
    seqs = rng.randint(1, 6)
    world = World(
        SchedulerConfig(
            max_num_seqs=seqs,
            chunk_size=rng.randint(seqs, 40),
            max_model_len=200,
            block_size=block_size,
            num_kv_blocks=num_blocks,
            enable_prefix_caching=caching,
            long_prefill_token_threshold=rng.choice([None, 5]),
        )
    )
    heads = [[rng.randrange(9) for _ in range(rng.randint(1, 40))] for _ in range(2)]
    for _ in range(rng.randint(5, 40)):
        move = rng.random()
        if move < 0.4:
            prompt = rng.choice(heads)[: rng.randint(1, 40)] + [
                rng.randrange(9) for _ in range(rng.randint(0, 12))
            ]
            world.add(prompt, rng.randint(1, 20), rng.choice(["", "", "tenant"]))
        elif move < 0.5 and world.sequences:
            world.core.abort(rng.choice(list(world.sequences)))
        elif move < 0.6:
            reconfigure(world, rng, num_blocks)
        elif move < 0.63:
            world.scheduler.reset_prefix_cache()
        else:
            world.step()
    world.drain()
    world.check_outputs()
    return world


def reconfigure(world: World, rng: random.Random, num_blocks: int) -> None:
    seqs = rng.randint(1, 6)
    try:
        world.scheduler.reconfigure(
            max_num_seqs=seqs,
            chunk_size=rng.randint(seqs, 40),
            kv_blocks_cap=rng.randint(1, num_blocks),
        )
    except RequestError as error:
        assert error.param == "gpu_memory_utilization"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    num_blocks=st.integers(2, 24),
    block_size=st.sampled_from([1, 4, 16]),
    caching=st.booleans(),
)
def test_books_balance_and_outputs_are_right(
    seed: int, num_blocks: int, block_size: int, caching: bool
) -> None:
    play(seed, num_blocks=num_blocks, block_size=block_size, caching=caching)


def test_outputs_are_right_when_every_hash_collides(monkeypatch) -> None:
    monkeypatch.setattr(prefix_hash, "block_hash", lambda *_: 7)
    for seed in range(60):
        play(seed, num_blocks=20, block_size=4, caching=True)


def test_the_games_do_reach_preemption_and_prefix_hits() -> None:
    preempted = hits = 0
    for seed in range(60):
        world = play(seed, num_blocks=14, block_size=4, caching=True)
        preempted += sum(s.num_preemptions for s in world.sequences.values())
        hits += sum(s.num_cached_tokens for s in world.sequences.values())
    assert preempted > 10
    assert hits > 100
