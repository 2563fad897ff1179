"""Log-probabilities of prompts and outputs: equal to transformers' log-softmax in float32, however
the work is cut into chunks, preempted, or preceded by others with the same prefix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from engine import environment
from engine.config import EngineConfig, SchedulerConfig
from engine.core import EngineCore, ScoredTokenEvent, TokenEvent
from engine.logprobs import Logprobs
from engine.models.locate import locate
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import Sequence

environment.prepare()
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from engine.runner import ModelRunner  # noqa: E402 (after the environment)
from tests.engine.tiny_models import save_folder, tiny_model  # noqa: E402

BLOCKS = 128
TOLERANCE = 2e-4
"""Of a log-probability: float32 sums in another order, in models whose weights are drawn wide."""

CHUNKS = (16, 17, 512)


@dataclass(frozen=True)
class Pair:
    """A model twice: in transformers, and in the engine."""

    model: transformers.PreTrainedModel
    runner: ModelRunner


@dataclass
class Told:
    """What the events of one request told."""

    sequence: Sequence
    prompt: list[Logprobs]
    output: list[Logprobs | None]

    def hear(self, event: TokenEvent) -> None:
        if isinstance(event, ScoredTokenEvent):
            self.prompt.extend(event.prompt_logprobs)
        self.output.append(event.logprobs if isinstance(event, ScoredTokenEvent) else None)

    @property
    def prompt_chosen(self) -> np.ndarray:
        return np.concatenate([part.chosen for part in self.prompt] or [np.empty(0)])


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    model = tiny_model(request.param, seed=3)
    return Pair(model, runner_of(str(save_folder(model, tmp_path_factory.mktemp("model")))))


def runner_of(model: str, dtype: str = "float32") -> ModelRunner:
    return ModelRunner(
        EngineConfig(
            model=model, dtype=dtype, num_kv_blocks=BLOCKS, max_num_seqs=16, max_num_seqs_limit=16,
            chunk_size=512, chunk_size_limit=512, max_model_len=512, num_threads=1,
        ).checked()
    )  # fmt: skip


def prompts() -> list[list[int]]:
    """Lengths around block and chunk borders; the last two share their head with the first."""
    random_ = np.random.default_rng(5)
    made = [random_.integers(3, 190, size).tolist() for size in (130, 1, 2, 16, 17, 65)]
    return [*made, made[0][:80], [*made[0][:100], 7, 9]]


def run(
    runner: ModelRunner, asked: list[list[int]], sampling: SamplingParams, **changes: int | bool
) -> list[Told]:
    config = SchedulerConfig(
        max_num_seqs=16, chunk_size=512, max_model_len=512, block_size=16, num_kv_blocks=BLOCKS,
        enable_prefix_caching=True,
    )  # fmt: skip
    scheduler = Scheduler(replace(config, **changes), frozenset(), lambda: 0.0)
    core = EngineCore(scheduler, runner)
    told = {
        f"r{i}": Told(Sequence(f"r{i}", prompt, sampling), [], [])
        for i, prompt in enumerate(asked)
    }  # fmt: skip
    for one in told.values():
        core.add_request(one.sequence)
    while core.has_work:
        for event in core.step().events:
            told[event.request_id].hear(event)
        scheduler.check_integrity()
    return list(told.values())


def expected(model: transformers.PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """log-softmax [n, vocab] before each token but the first."""
    with torch.inference_mode():
        return model(torch.tensor([token_ids])).logits[0].log_softmax(dim=-1)[:-1]


def assert_right(
    model: transformers.PreTrainedModel, told: Told, top: int, tolerance: float = TOLERANCE
) -> None:
    """Every token of the sequence has its figure, and each position its likeliest."""
    sequence = told.sequence
    wanted = expected(model, sequence.token_ids)
    parts = [*told.prompt, *(part for part in told.output if part is not None)]
    found = Logprobs.joined(parts)
    assert len(told.output) == sequence.num_output_tokens
    assert len(found) == sequence.num_tokens - 1
    chosen = wanted.gather(1, torch.tensor(sequence.token_ids[1:]).unsqueeze(1)).squeeze(1)
    np.testing.assert_allclose(found.chosen, chosen.numpy(), rtol=0, atol=tolerance)
    assert found.top.shape == found.top_ids.shape == (len(found), top)
    likeliest = wanted.topk(top, dim=-1).values
    np.testing.assert_allclose(found.top, likeliest.numpy(), rtol=0, atol=tolerance)
    named = wanted.gather(1, torch.tensor(found.top_ids.astype(np.int64)))
    np.testing.assert_allclose(found.top, named.numpy(), rtol=0, atol=tolerance)


SAMPLING = SamplingParams(max_tokens=6, ignore_eos=True, seed=1, logprobs=3, prompt_logprobs=3)


@pytest.mark.parametrize("chunk_size", CHUNKS)
def test_equal_to_transformers_with_any_chunk_size(pair: Pair, chunk_size: int) -> None:
    for told in run(pair.runner, prompts(), SAMPLING, chunk_size=chunk_size):
        assert_right(pair.model, told, top=3)


@pytest.mark.parametrize("chunk_size", [16, 512])
def test_a_warm_prefix_cache_hides_no_position(pair: Pair, chunk_size: int) -> None:
    """One after the other: the blocks of the first are there for the others, and stay unread."""
    made = run(
        pair.runner, [prompts()[0], *prompts()], SAMPLING, max_num_seqs=1, chunk_size=chunk_size
    )
    assert {told.sequence.num_cached_tokens for told in made} == {0}
    for told in made:
        assert_right(pair.model, told, top=3)


def test_the_cache_serves_those_that_ask_for_outputs_only(pair: Pair) -> None:
    sampling = replace(SAMPLING, prompt_logprobs=None)
    first, second = run(pair.runner, [prompts()[0]] * 2, sampling, max_num_seqs=1)
    assert (first.sequence.num_cached_tokens, second.sequence.num_cached_tokens) == (0, 128)
    assert second.prompt == []
    wanted = expected(pair.model, second.sequence.token_ids)[-len(second.output) :]
    chosen = wanted.gather(1, torch.tensor(second.sequence.output_token_ids).unsqueeze(1))
    found = Logprobs.joined([part for part in second.output if part is not None])
    np.testing.assert_allclose(found.chosen, chosen.squeeze(1).numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("enable_prefix_caching", [False, True])
def test_after_preemption(pair: Pair, enable_prefix_caching: bool) -> None:
    """Short ones grow while a long one comes in: it loses a half-computed prompt, others their
    output."""
    long = prompts()[0]
    short = [long[start : start + 14] for start in range(3)]
    sampling = replace(SAMPLING, max_tokens=60)
    made = run(
        pair.runner, [*short, long], sampling, num_kv_blocks=13, chunk_size=24,
        enable_prefix_caching=enable_prefix_caching,
    )  # fmt: skip
    sequences = [told.sequence for told in made if told.sequence.num_preemptions]
    half_way = [s for s in sequences if s.num_prefill_computed_tokens > s.num_prompt_tokens]
    assert half_way, "no prompt was preempted half-way"
    assert len(half_way) < len(sequences), "no output was preempted"
    for told in made:
        assert_right(pair.model, told, top=3)


def test_each_request_of_a_step_gets_what_it_asked_for(pair: Pair) -> None:
    runner = pair.runner
    config = SchedulerConfig(
        max_num_seqs=16, chunk_size=64, max_model_len=512, block_size=16, num_kv_blocks=BLOCKS
    )
    core = EngineCore(Scheduler(config, frozenset(), lambda: 0.0), runner)
    wishes: list[tuple[int | None, int | None]] = [(None, None), (0, None), (None, 2), (5, 0)]
    told = {}
    for number, (logprobs, prompt_logprobs) in enumerate(wishes):
        sampling = replace(SAMPLING, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        sequence = Sequence(f"r{number}", prompts()[0], sampling)
        told[sequence.request_id] = Told(sequence, [], [])
        core.add_request(sequence)
    while core.has_work:
        for event in core.step().events:
            told[event.request_id].hear(event)
    plain, zero, prompt_only, both = told.values()
    assert plain.output == [None] * 6
    assert plain.prompt == zero.prompt == []
    assert [part.top.shape for part in zero.output if part] == [(1, 0)] * 6
    assert prompt_only.output == [None] * 6
    assert {part.top.shape[1] for part in prompt_only.prompt} == {2}
    assert [part.top.shape for part in both.output if part] == [(1, 5)] * 6
    np.testing.assert_allclose(prompt_only.prompt_chosen, both.prompt_chosen, atol=TOLERANCE)


def test_told_before_the_samplers_bans_and_temperature(pair: Pair) -> None:
    """min_tokens forbids ending tokens, and temperature sharpens: the figures stay the model's."""
    ends = tuple(range(3, 60))
    sampling = replace(
        SAMPLING, temperature=0.3, min_tokens=6, stop_token_ids=ends, prompt_logprobs=3
    )
    for told in run(pair.runner, prompts(), sampling):
        assert not set(told.sequence.output_token_ids) & set(ends)
        assert_right(pair.model, told, top=3)


def test_greedy_token_has_the_figure_of_the_likeliest(pair: Pair) -> None:
    """To the last bit: evaluations compare the two to see whether an answer is the greedy one."""
    for told in run(pair.runner, prompts(), replace(SAMPLING, temperature=0.0)):
        for token_id, part in zip(told.sequence.output_token_ids, told.output, strict=True):
            assert part is not None
            assert (part.top_ids[0, 0], part.top[0, 0]) == (token_id, part.chosen[0])


REAL_PROMPTS = (
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "La Révolution française a commencé en 1789 à Paris. " * 6,
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
)


@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_real_model_equals_transformers() -> None:
    gguf = locate("")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    asked = [tokenizer(text)["input_ids"] for text in REAL_PROMPTS]
    runner = runner_of("")
    for chunk_size in (16, 512):
        for told in run(runner, asked, SAMPLING, chunk_size=chunk_size):
            assert_right(model, told, top=3, tolerance=1e-4)


@pytest.mark.model
@pytest.mark.timeout(600)
def test_bfloat16_of_the_real_model_stays_close() -> None:
    """Half precision moves each log-probability a little, its rounding of logits must not add."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        locate("").parent, gguf_file=locate("").name
    )
    asked = [tokenizer(text)["input_ids"] for text in REAL_PROMPTS]
    exact = run(runner_of(""), asked, SAMPLING)
    rounded = run(runner_of("", "bfloat16"), asked, SAMPLING)
    for one, other in zip(exact, rounded, strict=True):
        difference = np.abs(one.prompt_chosen - other.prompt_chosen)
        assert difference.mean() < 0.1
