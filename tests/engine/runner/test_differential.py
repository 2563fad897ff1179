"""A naive engine without cache, batch or chunks against the real one, on random workloads.

The naive one is transformers on one sequence at a time. Small pools force preemption, shared
prefixes hit the cache, requests are aborted midway; greedy tokens must be the same throughout.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import transformers

from engine.config import EngineConfig, SchedulerConfig
from engine.core import EngineCore
from engine.runner import ModelRunner
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.plan import ScheduledSeq, StepOutput, StepPlan
from engine.sequence import Sequence
from tests.engine.tiny_models import save_folder, tiny_model

POOL_BLOCKS = 40
BLOCK_SIZE = 16
FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Pair:
    model: transformers.PreTrainedModel
    runner: ModelRunner


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    model = tiny_model(request.param, seed=1)
    folder = save_folder(model, tmp_path_factory.mktemp("model"))
    return Pair(model, runner_of(folder))


def runner_of(folder: Path) -> ModelRunner:
    return ModelRunner(
        EngineConfig(
            model=str(folder), dtype="float32", num_kv_blocks=POOL_BLOCKS, max_num_seqs=16,
            max_num_seqs_limit=16, chunk_size=256, chunk_size_limit=256, block_size=BLOCK_SIZE,
        ).checked()
    )  # fmt: skip


def naive_is_greedy(model: transformers.PreTrainedModel, sequence: Sequence) -> None:
    """Each output token is the likeliest after all that came before it."""
    if not sequence.output_token_ids:
        return
    with torch.inference_mode():
        logits = model(torch.tensor([sequence.token_ids[:-1]])).logits[0]
    after = logits[sequence.num_prompt_tokens - 1 :]
    chosen = after.gather(1, torch.tensor(sequence.output_token_ids).unsqueeze(1)).squeeze(1)
    gaps = after.amax(dim=-1) - chosen
    assert float(gaps.max()) < 1e-4 * float(logits.std()), "not the likeliest token"


def all_are_greedy(model: transformers.PreTrainedModel, sequences: list[Sequence]) -> None:
    for sequence in sequences:
        naive_is_greedy(model, sequence)


def workload(random_: random.Random) -> list[tuple[list[int], int]]:
    """(prompt, tokens wanted) of a dozen requests; half of them continue a shared prefix."""
    shared = [random_.randrange(200) for _ in range(random_.choice([16, 40, 64]))]
    requests = []
    for _ in range(12):
        own = [random_.randrange(200) for _ in range(random_.randint(1, 90))]
        prefix = shared[: random_.randrange(len(shared) + 1)] if random_.random() < 0.7 else []
        requests.append((prefix + own, random_.randint(1, 40)))
    requests.append((list(shared), 5))
    requests.append((list(shared), 5))
    return requests


def serve(
    runner: ModelRunner, random_: random.Random, requests: list[tuple[list[int], int]]
) -> tuple[list[Sequence], Scheduler]:
    """Requests arrive a few steps apart; about one in six is aborted while it runs."""
    max_num_seqs = random_.choice([1, 3, 8, 16])
    chunk_size = random_.choice([16, 17, 64, 256])
    config = SchedulerConfig(
        max_num_seqs=max_num_seqs, chunk_size=max(chunk_size, max_num_seqs), max_model_len=256,
        block_size=BLOCK_SIZE, num_kv_blocks=random_.choice([16, 24, POOL_BLOCKS]),
        enable_prefix_caching=random_.random() < 0.8,
    )  # fmt: skip
    scheduler = Scheduler(config, frozenset(), lambda: 0.0)
    core = EngineCore(scheduler, runner)
    waiting = [
        Sequence(
            f"r{i}",
            prompt,
            SamplingParams(max_tokens=wanted, temperature=0, ignore_eos=True),
        )
        for i, (prompt, wanted) in enumerate(requests)
    ]
    sequences = list(waiting)
    while waiting or core.has_work:
        if waiting and (not core.has_work or random_.random() < 0.5):
            core.add_request(waiting.pop(0))
        if scheduler.running and random_.random() < 0.01:
            core.abort(random_.choice(list(scheduler.running)).request_id)
        core.step()
        scheduler.check_integrity()
    return sequences, scheduler


@pytest.mark.parametrize("seed", range(6))
def test_same_tokens_as_without_cache_batch_and_chunks(pair: Pair, seed: int) -> None:
    random_ = random.Random(seed)
    requests = workload(random_)
    sequences, scheduler = serve(pair.runner, random_, requests)
    for sequence, (_, wanted) in zip(sequences, requests, strict=True):
        if sequence.finish_reason == "length":
            assert sequence.num_output_tokens == wanted
        else:
            assert sequence.finish_reason == "abort"
    all_are_greedy(pair.model, sequences)
    assert scheduler.pool.num_used == 0


def test_the_workloads_do_what_they_are_for(pair: Pair) -> None:
    """Over the seeds: preemptions, cache hits and aborts all happen."""
    seen: dict[str, int] = {"preempted": 0, "cached": 0, "aborted": 0}
    for seed in range(6):
        random_ = random.Random(seed)
        sequences, _ = serve(pair.runner, random_, workload(random_))
        seen["preempted"] += sum(s.num_preemptions for s in sequences)
        seen["cached"] += sum(s.num_cached_tokens for s in sequences)
        seen["aborted"] += sum(s.finish_reason == "abort" for s in sequences)
    assert all(seen.values()), seen


def with_wrong_token(share: ScheduledSeq) -> ScheduledSeq:
    return replace(share, token_ids=[5, *share.token_ids[1:]])


def with_wrong_block(share: ScheduledSeq) -> ScheduledSeq:
    return replace(share, block_table=(share.block_table[1], *share.block_table[1:]))


@pytest.mark.parametrize("corrupt", [with_wrong_token, with_wrong_block])
def test_the_comparison_notices(
    pair: Pair, corrupt: Callable[[ScheduledSeq], ScheduledSeq], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = ModelRunner.execute

    def corrupted(self: ModelRunner, plan: StepPlan) -> StepOutput:
        shares = (corrupt(s) if s.num_computed_tokens > 40 else s for s in plan.scheduled)
        return execute(self, replace(plan, scheduled=tuple(shares)))

    monkeypatch.setattr(ModelRunner, "execute", corrupted)
    random_ = random.Random(0)
    sequences, _ = serve(pair.runner, random_, workload(random_))
    with pytest.raises(AssertionError, match="not the likeliest"):
        all_are_greedy(pair.model, sequences)
