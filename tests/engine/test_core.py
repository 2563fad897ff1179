"""The core loop: what one step hands to clients and to the metrics, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from engine.config import SchedulerConfig
from engine.core import EngineCore, StepResult
from engine.sampling_params import SamplingParams
from engine.scheduler import BindingLimit, Scheduler, StepOutput, StepPlan
from engine.sequence import Sequence
from engine.stats import FinishedStats


@dataclass
class Clock:
    """Stands still unless told; a step of the model moves it."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class TimedRunner:
    """Samples `token` for everyone and takes step_s of the clock."""

    clock: Clock
    step_s: float = 0.5
    token: int = 9
    plans: list[StepPlan] = field(default_factory=list)

    def execute(self, plan: StepPlan) -> StepOutput:
        self.plans.append(plan)
        self.clock.now_s += self.step_s
        return StepOutput(
            {share.seq_id: self.token for share in plan.scheduled if share.needs_sample},
            prepare_s=0.1,
            forward_s=0.3,
            sample_s=0.1,
        )


def core(*, num_kv_blocks: int = 16, caching: bool = True, chunk_size: int = 16) -> EngineCore:
    clock = Clock()
    config = SchedulerConfig(
        max_num_seqs=2,
        chunk_size=chunk_size,
        max_model_len=64,
        block_size=4,
        num_kv_blocks=num_kv_blocks,
        enable_prefix_caching=caching,
    )
    return EngineCore(Scheduler(config, frozenset({0}), clock), TimedRunner(clock), clock)


def request(name: str, num_prompt: int, max_tokens: int, arrival_s: float = 99.0) -> Sequence:
    prompt = [100 + i for i in range(num_prompt)]
    return Sequence(name, prompt, SamplingParams(max_tokens=max_tokens), arrival_s)


def run(made: EngineCore) -> list[StepResult]:
    results = []
    while made.has_work:
        results.append(made.step())
    return results


def finished(results: list[StepResult]) -> dict[str, FinishedStats]:
    return {done.request_id: done for result in results for done in result.finished}


def test_events_bring_each_token_and_the_reason_with_the_last() -> None:
    made = core()
    made.add_request(request("a", 3, 2))
    events = [event for result in run(made) for event in result.events]
    assert [(e.token_id, e.finish_reason, e.num_output_tokens) for e in events] == [
        (9, None, 1),
        (9, "length", 2),
    ]
    assert {e.num_prompt_tokens for e in events} == {3}


def test_times_of_a_request_follow_the_definitions() -> None:
    """Arrived at 99, queued at 100, waits 2 s for a seat, then three steps of 0.5 s."""
    made = core()
    made.add_request(request("a", 3, 3))
    made.clock.now_s += 2.0  # type: ignore[attr-defined]
    results = run(made)
    assert [r.prefilled[0].ttft_s for r in results if r.prefilled] == [pytest.approx(3.5)]
    assert [gap for r in results for gap in r.itl_s] == [pytest.approx(0.5)] * 2
    done = finished(results)["a"]
    assert done.queue_s == pytest.approx(2.0)
    assert done.prefill_s == pytest.approx(0.5)
    assert done.decode_s == pytest.approx(1.0)
    assert done.inference_s == pytest.approx(1.5)
    assert done.tpot_s == pytest.approx(0.5)
    assert done.e2e_s == pytest.approx(4.5)
    assert (done.num_prompt_tokens, done.num_output_tokens, done.max_tokens_asked) == (3, 3, 3)


def test_one_output_token_has_no_time_per_output_token() -> None:
    made = core()
    made.add_request(request("a", 3, 1))
    done = finished(run(made))["a"]
    assert done.tpot_s is None
    assert done.decode_s == 0.0


def test_an_abort_before_the_first_token_has_no_durations_beyond() -> None:
    made = core()
    made.add_request(request("a", 3, 5))
    assert made.abort("a")
    assert not made.has_work
    result = made.step()
    assert result.stats.batch_size == 0
    assert result.prefilled == []
    (done,) = result.finished
    assert done.finish_reason == "abort"
    assert (done.queue_s, done.prefill_s, done.decode_s, done.inference_s) == (None,) * 4
    assert made.num_unfinished == 0


def test_what_ended_is_told_to_the_runner_once() -> None:
    made = core()
    made.add_request(request("a", 3, 1))
    made.step()
    made.add_request(request("b", 3, 2))
    run(made)
    plans = made.runner.plans  # type: ignore[attr-defined]
    assert [plan.released_seq_ids for plan in plans] == [(), (0,), ()]


def test_a_step_counts_tokens_batch_and_phases() -> None:
    made = core()
    made.add_request(request("a", 3, 2))
    made.add_request(request("b", 5, 2))
    first = made.step().stats
    assert (first.num_scheduled_tokens, first.batch_size, first.num_generated_tokens) == (8, 2, 2)
    assert (first.prepare_s, first.forward_s, first.sample_s) == (0.1, 0.3, 0.1)
    assert (first.schedule_s, first.postprocess_s) == (0.0, 0.0)
    second = made.step().stats
    assert (second.num_scheduled_tokens, second.batch_size) == (2, 2)


def test_gauges_are_taken_after_the_step() -> None:
    made = core()
    for name in "abc":
        made.add_request(request(name, 4, 2))
    first = made.step().stats
    assert (first.num_running, first.num_waiting, first.num_waiting_deferred) == (2, 1, 0)
    assert (first.num_used_blocks, first.num_cached_blocks, first.num_free_blocks) == (2, 0, 14)
    assert first.kv_usage == pytest.approx(2 / 16)
    assert first.binding_limit is BindingLimit.SEQ_CAP
    last = run(made)[-1].stats
    assert (last.num_running, last.num_waiting, last.num_used_blocks) == (0, 0, 0)
    assert last.kv_usage == 0.0
    assert last.num_free_blocks + last.num_cached_blocks == 16


def test_block_gauges_add_up_to_a_lowered_cap() -> None:
    made = core()
    made.add_request(request("a", 9, 2))
    made.step()
    made.scheduler.reconfigure(kv_blocks_cap=5)
    stats = made.step().stats
    assert stats.num_free_blocks + stats.num_cached_blocks + stats.num_used_blocks == 5


def test_the_prefix_cache_is_counted_at_first_admission_only() -> None:
    """Both requests are preempted or resumed at will; each is asked about once."""
    made = core(num_kv_blocks=5)
    made.add_request(request("a", 7, 9))
    made.add_request(request("b", 7, 9))
    results = run(made)
    assert sum(r.stats.num_preemptions for r in results) > 0
    assert sum(r.stats.prefix_query_tokens for r in results) == 14
    assert sum(r.stats.prefix_hit_tokens for r in results) == 0


def test_without_a_prefix_cache_nothing_is_asked_of_it() -> None:
    made = core(caching=False)
    made.add_request(request("a", 8, 1))
    assert made.step().stats.prefix_query_tokens == 0


def test_a_cached_prompt_is_reported_from_the_first_token_on() -> None:
    made = core()
    made.add_request(request("a", 9, 1))
    made.step()
    made.add_request(request("b", 9, 1))
    result = made.step()
    assert result.events[0].num_cached_tokens == 8
    assert result.prefilled[0].num_cached_tokens == 8
    assert result.finished[0].num_prefill_computed_tokens == 1


def test_preempted_tokens_are_those_computed_twice() -> None:
    """What a resumed request finds in the prefix cache was not lost."""
    made = core(num_kv_blocks=9)
    lengths = {"a": (12, 20), "b": (13, 20)}
    for name, (num_prompt, max_tokens) in lengths.items():
        prompt = [ord(name) * 100 + i for i in range(num_prompt)]
        made.add_request(Sequence(name, prompt, SamplingParams(max_tokens=max_tokens)))
    results = run(made)
    computed = sum(r.stats.num_scheduled_tokens for r in results)
    needed = sum(num_prompt + max_tokens - 1 for num_prompt, max_tokens in lengths.values())
    preemptions = sum(r.stats.num_preemptions for r in results)
    assert preemptions == sum(d.num_preemptions for d in finished(results).values()) > 0
    assert sum(r.stats.num_preempted_tokens for r in results) == computed - needed > 0


def test_a_preemption_after_the_first_token_stays_inside_the_gap() -> None:
    made = core(num_kv_blocks=5, caching=False)
    made.add_request(request("a", 7, 9))
    made.add_request(request("b", 7, 9))
    results = run(made)
    gaps = [gap for r in results for gap in r.itl_s]
    assert len(gaps) == 16
    assert max(gaps) > 0.6
    assert len([r for r in results if r.prefilled]) == 1, "TTFT is observed once a request"


def test_a_failing_runner_reaches_the_caller() -> None:
    class Broken:
        def execute(self, plan: StepPlan) -> StepOutput:
            raise RuntimeError("device lost")

    made = core()
    made.runner = Broken()
    made.add_request(request("a", 3, 2))
    with pytest.raises(RuntimeError, match="device lost"):
        made.step()
    assert made.num_unfinished == 1
