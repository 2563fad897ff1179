"""Faults that other engines had to have reported to them; each is played here end to end."""

from __future__ import annotations

import pytest

from engine.config import SchedulerConfig
from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from tests.engine.scheduler.world import World


def world(**changes: int | bool) -> World:
    values = {
        "max_num_seqs": 4,
        "chunk_size": 32,
        "max_model_len": 64,
        "block_size": 4,
        "num_kv_blocks": 16,
    }
    return World(SchedulerConfig(**{**values, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_a_prompt_of_whole_blocks_that_is_fully_cached_still_answers(blocks: int) -> None:
    made = world()
    tokens = list(range(10, 10 + 4 * blocks))
    for _ in range(2):
        made.arrive(tokens, 3)
        made.drain()
    again = made.sequences["r1"]
    assert again.num_cached_tokens == 4 * (blocks - 1)


def test_a_reused_block_is_not_served_under_its_old_hash() -> None:
    made = world(num_kv_blocks=4, max_model_len=16)
    first, second = [1] * 12, [2] * 12
    for tokens in (first, second, first, second, first):
        made.arrive(tokens, 4)
        made.drain()  # checks each answer against its own prompt


def test_a_preempted_sequence_resumes_with_its_own_tokens() -> None:
    for caching in (True, False):
        made = world(num_kv_blocks=6, max_model_len=24, enable_prefix_caching=caching)
        for first in (11, 12, 13):
            made.arrive([first] * 6, 15)
        made.drain()
        assert sum(s.num_preemptions for s in made.sequences.values()) > 0


def test_a_preempted_sequence_goes_before_those_that_came_later() -> None:
    made = world(num_kv_blocks=6, max_model_len=24, enable_prefix_caching=False, max_num_seqs=2)
    for first in (12, 13, 14, 16):
        made.arrive([first] * 6, 15)
    for _ in range(30):
        made.step()
        if made.sequences["r1"].num_preemptions:
            break
    assert [s.request_id for s in made.scheduler.waiting] == ["r1", "r2", "r3"]
    made.drain()


def test_a_request_larger_than_the_pool_is_refused_and_blocks_nobody() -> None:
    made = world(num_kv_blocks=4)
    made.arrive([1] * 17, 1)
    made.arrive([1] * 5, 20)
    made.arrive([1] * 5, 12)
    made.drain()
    assert [made.ended[f"r{i}"] for i in range(2)] == ["refused", "refused"]
    assert made.ended["r2"] != "refused"


def test_identical_prompts_in_one_step_answer_alike() -> None:
    made = world()
    for _ in range(3):
        made.arrive([7] * 9, 4)
    made.drain()
    assert made.received["r0"] == made.received["r1"] == made.received["r2"]


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_no_tokens_asked_is_refused_at_the_door(max_tokens: int) -> None:
    made = world()
    with pytest.raises(RequestError, match="max_tokens") as caught:
        made.scheduler.add(Sequence("x", [1, 2], SamplingParams(max_tokens=max_tokens)))
    assert caught.value.param == "max_tokens"
    assert not made.core.has_work


def test_a_request_id_in_use_is_refused_and_free_again_afterwards() -> None:
    made = world()
    asked = SamplingParams(max_tokens=2)
    made.scheduler.add(Sequence("x", [1, 2], asked))
    with pytest.raises(RequestError, match="in use"):
        made.scheduler.add(Sequence("x", [1, 2], asked))
    assert made.scheduler.num_unfinished == 1
    made.scheduler.abort("x")
    made.scheduler.add(Sequence("x", [1, 2], asked))


def test_room_promised_to_a_running_prompt_is_not_given_away() -> None:
    """A short request that only fits while a long prompt is half computed would be thrown out."""
    made = world(num_kv_blocks=12, long_prefill_token_threshold=4)
    made.arrive(list(range(10, 50)), 4)
    made.step()
    made.arrive([1] * 12, 20)
    made.drain()
    assert [s.num_preemptions for s in made.sequences.values()] == [0, 0]
