"""The real model, greedy and in float32: equal to transformers, however requests are batched."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from engine import environment
from engine.config import EngineConfig, SchedulerConfig
from engine.core import EngineCore
from engine.models.locate import locate
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import Sequence

environment.prepare()
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from engine.runner import ModelRunner  # noqa: E402 (after the environment)

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

NEW_TOKENS = 64
NUM_BLOCKS = 700
PROMPTS = (
    "The capital of France is",
    "Explain in simple words why the sky is blue.",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village at the edge of a dark forest, there lived",
    "List three differences between TCP and UDP:\n1.",
    "La Révolution française a commencé en",
    "Q: A train leaves at 9:40 and arrives at 13:05. How long does it take?\nA:",
    "SELECT name, COUNT(*) FROM orders",
)

Tokens = list[int]


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    config = EngineConfig(
        dtype="float32", num_kv_blocks=NUM_BLOCKS, max_num_seqs_limit=32, max_num_seqs=32,
        chunk_size=512, chunk_size_limit=512, max_model_len=512, num_threads=1,
    ).checked()  # fmt: skip
    return ModelRunner(config)


@pytest.fixture(scope="module")
def prompts() -> list[Tokens]:
    gguf = locate("")
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    return [tokenizer(text)["input_ids"] for text in PROMPTS]


def generate(runner: ModelRunner, prompts: list[Tokens], **changes: int | bool) -> list[Sequence]:
    """All prompts at once through a scheduler of their own."""
    config = SchedulerConfig(
        max_num_seqs=32, chunk_size=512, max_model_len=512, block_size=16,
        num_kv_blocks=NUM_BLOCKS, enable_prefix_caching=False,
    )  # fmt: skip
    scheduler = Scheduler(replace(config, **changes), frozenset(), time.monotonic)
    core = EngineCore(scheduler, runner)
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
    sequences = [Sequence(f"r{i}", prompt, sampling) for i, prompt in enumerate(prompts)]
    for sequence in sequences:
        core.add_request(sequence)
    while core.has_work:
        core.step()
        scheduler.check_integrity()
    return sequences


def outputs(sequences: list[Sequence]) -> list[Tokens]:
    return [sequence.output_token_ids for sequence in sequences]


@pytest.fixture(scope="module")
def expected(runner: ModelRunner, prompts: list[Tokens]) -> list[Tokens]:
    """Each prompt alone, what every other way of running it must reproduce."""
    return [outputs(generate(runner, [prompt]))[0] for prompt in prompts]


def test_alone_equals_transformers(prompts: list[Tokens], expected: list[Tokens]) -> None:
    """Each token must be transformers' most likely one after all before it, which by induction is
    its greedy output; one forward pass shows all positions."""
    gguf = locate("")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    )
    for prompt, answer in zip(prompts, expected, strict=True):
        assert len(answer) == NEW_TOKENS
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer])).logits[0]
        assert logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist() == answer


def test_in_a_batch_of_32(
    runner: ModelRunner, prompts: list[Tokens], expected: list[Tokens]
) -> None:
    assert outputs(generate(runner, prompts * 4)) == expected * 4


@pytest.mark.parametrize("chunk_size", [16, 512])
def test_with_any_chunk_size(
    runner: ModelRunner, prompts: list[Tokens], expected: list[Tokens], chunk_size: int
) -> None:
    made = generate(runner, prompts, chunk_size=chunk_size, max_num_seqs=8)
    assert outputs(made) == expected


def test_after_a_forced_preemption(
    runner: ModelRunner, prompts: list[Tokens], expected: list[Tokens]
) -> None:
    made = generate(runner, prompts, num_kv_blocks=16)
    assert sum(sequence.num_preemptions for sequence in made) > 0
    assert outputs(made) == expected


def test_with_prefix_cache_hits(
    runner: ModelRunner, prompts: list[Tokens], expected: list[Tokens]
) -> None:
    longest = max(range(len(prompts)), key=lambda i: len(prompts[i]))
    repeated = [prompts[longest]] * 3
    made = generate(runner, repeated, enable_prefix_caching=True, max_num_seqs=1)
    assert [sequence.num_cached_tokens for sequence in made][1:] == [16, 16]
    assert outputs(made) == [expected[longest]] * 3
