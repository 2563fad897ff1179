"""Single rules of the scheduler, each shown alone."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import SchedulerConfig
from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from engine.scheduler import BindingLimit, Scheduler, StepOutput, StepPlan
from engine.sequence import Sequence
from tests.engine.scheduler.recording_runner import RecordingRunner


def scheduler(**changes: Any) -> Scheduler:
    values: dict[str, Any] = {
        "max_num_seqs": 4,
        "chunk_size": 16,
        "max_model_len": 64,
        "block_size": 4,
        "num_kv_blocks": 16,
    }
    return Scheduler(SchedulerConfig(**{**values, **changes}), frozenset({0}), lambda: 0.0)


def sequence(name: str, prompt: int | list[int], max_tokens: int | None = 4, **kw: Any) -> Sequence:
    tokens = list(range(1, prompt + 1)) if isinstance(prompt, int) else prompt
    return Sequence(name, tokens, SamplingParams(max_tokens=max_tokens, **kw))


def step(made: Scheduler, token: int = 9) -> StepPlan:
    plan = made.schedule()
    assert plan is not None
    sampled = {share.seq_id: token for share in plan.scheduled if share.needs_sample}
    made.postprocess(plan, StepOutput(sampled))
    made.check_integrity()
    return plan


def test_a_long_prompt_is_computed_in_chunks_beside_decodes() -> None:
    made = scheduler()
    made.add(sequence("short", 3, 10))
    step(made)
    made.add(sequence("long", 40))
    counts = [[s.num_scheduled_tokens for s in step(made).scheduled] for _ in range(3)]
    assert counts == [[1, 15], [1, 15], [1, 10]]


def test_decodes_come_before_an_older_prefill() -> None:
    made = scheduler(long_prefill_token_threshold=4)
    made.add(sequence("long", 30))
    made.add(sequence("short", 2, 10))
    step(made)
    assert [s.num_scheduled_tokens for s in step(made).scheduled] == [1, 4]


def test_the_token_budget_binds() -> None:
    made = scheduler()
    for name in "ab":
        made.add(sequence(name, 16))
    assert step(made).binding_limit is BindingLimit.TOKEN_BUDGET


def test_the_sequence_cap_binds() -> None:
    made = scheduler(max_num_seqs=1)
    for name in "ab":
        made.add(sequence(name, 2))
    assert step(made).binding_limit is BindingLimit.SEQ_CAP


def test_kv_binds_when_the_next_prompt_does_not_fit() -> None:
    made = scheduler(num_kv_blocks=6, max_model_len=24, enable_prefix_caching=False)
    made.add(sequence("a", 14))
    made.add(sequence("b", 14))
    assert step(made).binding_limit is BindingLimit.KV_PRESSURE
    assert [s.request_id for s in made.waiting] == ["b"]


def test_nothing_waits_is_underloaded() -> None:
    made = scheduler()
    made.add(sequence("a", 2))
    assert step(made).binding_limit is BindingLimit.UNDERLOADED


def test_the_newest_is_preempted_and_resumes_with_all_its_tokens() -> None:
    made = scheduler(num_kv_blocks=5, max_model_len=20, enable_prefix_caching=False)
    made.add(sequence("old", 7, 9))
    made.add(sequence("new", 7, 9))
    plans = []
    while made.has_work:
        plans.append(step(made))
    preempted = [plan for plan in plans if plan.preempted_seq_ids]
    assert preempted[0].preempted_seq_ids == (1,)
    assert preempted[0].binding_limit is BindingLimit.KV_PRESSURE
    seen = made.take_observations()
    assert {done.finish_reason for done in seen.finished} == {"length"}
    assert seen.num_preempted_tokens >= 7
    resumed = [s for p in plans for s in p.scheduled if s.seq_id == 1 and s.num_output_tokens]
    assert any(s.num_computed_tokens == 0 and s.num_scheduled_tokens > 7 for s in resumed)


def test_a_fully_cached_prompt_still_computes_its_last_token() -> None:
    made = scheduler()
    made.add(sequence("first", 8, 1))
    step(made)
    made.add(sequence("again", 8, 1))
    plan = step(made)
    assert plan.scheduled[0].num_computed_tokens == 4
    assert plan.scheduled[0].num_scheduled_tokens == 4
    seen = made.take_observations()
    assert (seen.prefix_query_tokens, seen.prefix_hit_tokens) == (16, 4)


def test_a_salt_keeps_caches_apart() -> None:
    made = scheduler()
    made.add(sequence("first", 8, 1))
    step(made)
    other = sequence("other", 8, 1)
    other.cache_salt = "tenant"
    made.add(other)
    assert step(made).scheduled[0].num_computed_tokens == 0


def test_identical_prompts_in_one_step_share_nothing_yet() -> None:
    made = scheduler(chunk_size=32)
    for name in "ab":
        made.add(sequence(name, 9, 2))
    plan = step(made)
    tables = [set(s.block_table) for s in plan.scheduled]
    assert not tables[0] & tables[1]


def test_eos_and_stop_tokens_end_unless_told_otherwise() -> None:
    made = scheduler()
    made.add(sequence("eos", 2))
    made.add(sequence("ignores", 2, 2, ignore_eos=True))
    made.add(sequence("not-yet", 2, 2, min_tokens=2))
    step(made, token=0)
    assert [s.request_id for s in made.running] == ["ignores", "not-yet"]
    made.add(sequence("stop", 2, 4, stop_token_ids=(7,)))
    step(made, token=7)
    reasons = {d.request_id: d.finish_reason for d in made.take_observations().finished}
    assert reasons == {"eos": "stop", "ignores": "length", "not-yet": "length", "stop": "stop"}


@pytest.mark.parametrize(("min_tokens", "num_output"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_min_tokens_is_the_first_token_that_may_end_it(min_tokens: int, num_output: int) -> None:
    made = scheduler()
    asked = sequence("a", 2, 4, min_tokens=min_tokens)
    made.add(asked)
    while made.has_work:
        step(made, token=0)
    assert (asked.finish_reason, asked.num_output_tokens) == ("stop", num_output)


def test_an_abort_between_schedule_and_postprocess_is_safe() -> None:
    made = scheduler()
    made.add(sequence("a", 4))
    made.add(sequence("b", 4))
    plan = made.schedule()
    assert plan is not None
    assert made.abort("a")
    events = made.postprocess(plan, StepOutput({0: 5, 1: 5}))
    assert [event.request_id for event in events] == ["b"]
    assert not made.abort("a")
    made.check_integrity()


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "needle"),
    [
        ([], 4, "empty"),
        (64, 1, "maximum context length of 64"),
        (20, 40, "KV pool"),
        (60, None, "KV pool"),
    ],
)
def test_impossible_requests_are_refused_at_the_door(
    prompt: int | list[int], max_tokens: int | None, needle: str
) -> None:
    made = scheduler(num_kv_blocks=14)
    with pytest.raises(RequestError, match=needle) as caught:
        made.add(sequence("x", prompt, max_tokens))
    assert caught.value.status == 400
    assert not made.has_work


def test_without_max_tokens_the_pool_bounds_the_answer() -> None:
    made = scheduler(num_kv_blocks=8)
    asked = sequence("x", 20, None)
    made.add(asked)
    assert asked.max_output_tokens == 13
    while made.has_work:
        step(made)
    assert asked.num_output_tokens == 13


def test_a_full_queue_is_a_503() -> None:
    made = scheduler(max_num_queued_reqs=1)
    made.add(sequence("a", 2))
    with pytest.raises(RequestError, match="queue is full") as caught:
        made.add(sequence("b", 2))
    assert caught.value.status == 503


def test_a_cap_below_an_admitted_request_is_refused() -> None:
    made = scheduler()
    made.add(sequence("a", 20, 10))
    with pytest.raises(RequestError, match="may need 8"):
        made.reconfigure(kv_blocks_cap=7)
    made.reconfigure(kv_blocks_cap=8)
    while made.has_work:
        step(made)


def test_chunk_below_max_num_seqs_is_refused_and_changes_nothing() -> None:
    made = scheduler()
    with pytest.raises(RequestError, match="chunk_size"):
        made.reconfigure(chunk_size=3)
    assert made.config.chunk_size == 16


def test_a_lowered_cap_evicts_cached_blocks() -> None:
    made = scheduler()
    made.add(sequence("a", 16, 1))
    step(made)
    assert made.pool.num_cached == 4
    made.reconfigure(kv_blocks_cap=2)
    assert made.pool.num_cached == 2
    made.check_integrity()


def test_integrity_check_finds_a_leak() -> None:
    made = scheduler()
    made.add(sequence("a", 9))
    step(made)
    made.running[0].block_table.pop()
    with pytest.raises(AssertionError, match="differ"):
        made.check_integrity()


def test_integrity_check_finds_a_waiting_sequence_with_computed_tokens() -> None:
    made = scheduler()
    made.add(sequence("a", 9))
    made.waiting[0].num_computed_tokens = 4
    with pytest.raises(AssertionError, match="waiting a holds"):
        made.check_integrity()


def test_integrity_check_finds_a_lost_request() -> None:
    made = scheduler()
    made.add(sequence("a", 9))
    made.waiting.clear()
    with pytest.raises(AssertionError, match="neither waiting nor running"):
        made.check_integrity()


def test_the_recording_runner_finds_wrong_sharing() -> None:
    made = scheduler()
    runner = RecordingRunner(4)
    for name, first in (("a", 1), ("b", 2)):
        made.add(sequence(name, [first, 5, 6, 7, 8], 4))
    plan = made.schedule()
    assert plan is not None
    made.postprocess(plan, runner.execute(plan))
    made.running[1].block_table[:] = made.running[0].block_table
    plan = made.schedule()
    assert plan is not None
    with pytest.raises(AssertionError):
        runner.execute(plan)
