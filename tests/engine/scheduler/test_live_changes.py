"""Limits turned while requests run: nothing is harmed, nothing is half applied."""

from __future__ import annotations

import pytest

from engine.config import SchedulerConfig
from engine.errors import RequestError
from tests.engine.scheduler.world import World


def world(**changes: int) -> World:
    values = {
        "max_num_seqs": 4,
        "chunk_size": 16,
        "max_model_len": 64,
        "block_size": 4,
        "num_kv_blocks": 16,
    }
    return World(SchedulerConfig(**{**values, **changes}))


def prompt(first: int, length: int) -> list[int]:
    return [first, *range(10, 10 + length - 1)]


def test_fewer_seats_drain_and_are_not_refilled() -> None:
    made = world()
    for first in range(4):
        made.arrive(prompt(first, 3), 3 + 3 * first)
    made.step()
    made.arrive(prompt(8, 3), 2)
    made.reconfigure(1, 16, 16)
    while len(made.scheduler.running) > 1:
        made.step()
        assert [s.request_id for s in made.scheduler.waiting] == ["r4"]
    made.drain()


def test_a_budget_below_the_running_sequences_is_shared_by_the_oldest() -> None:
    made = world()
    for first in range(4):
        made.arrive(prompt(first, 3), 8)
    made.step()
    made.reconfigure(1, 2, 16)
    made.step()
    assert [s.seq_id for s in made.runner.plans[-1].scheduled] == [0, 1]
    made.drain()


def test_a_raised_budget_and_more_seats_act_at_once() -> None:
    made = world(max_num_seqs=1, chunk_size=4)
    for first in range(3):
        made.arrive(prompt(first, 8), 2)
    made.step()
    made.reconfigure(4, 32, 16)
    made.step()
    assert made.runner.plans[-1].num_scheduled_tokens == 4 + 8 + 8
    made.drain()


def test_a_cap_below_what_is_in_use_preempts_the_newest() -> None:
    made = world()
    for first in range(3):
        made.arrive(prompt(first, 14), 6)
    for _ in range(3):
        made.step()
    assert made.scheduler.pool.num_used == 12
    made.reconfigure(4, 16, 5)
    assert made.scheduler.config.kv_blocks_cap == 5
    made.scheduler.check_integrity()
    made.drain()
    assert [made.sequences[f"r{i}"].num_preemptions > 0 for i in range(3)] == [False, True, True]


def test_a_cap_follows_into_admission() -> None:
    made = world()
    made.reconfigure(4, 16, 4)
    made.arrive(prompt(1, 10), 8)
    made.arrive(prompt(2, 10), 7)
    assert made.ended == {"r0": "refused"}
    made.drain()


def test_an_open_ended_request_follows_the_cap_down_and_up() -> None:
    made = world()
    made.arrive(prompt(1, 8), None)
    open_ended = made.sequences["r0"]
    assert open_ended.max_output_tokens == 56
    made.step()
    made.scheduler.reconfigure(kv_blocks_cap=4)
    assert open_ended.max_output_tokens == 9
    made.scheduler.reconfigure(kv_blocks_cap=6)
    assert open_ended.max_output_tokens == 17
    made.drain()
    assert made.ended == {"r0": "length"} or made.ended == {"r0": "stop"}


def test_a_cap_may_not_break_a_promise_nor_lose_what_is_there() -> None:
    made = world()
    made.arrive(prompt(1, 8), None)
    made.step()
    with pytest.raises(RequestError, match="may need 3"):
        made.scheduler.reconfigure(kv_blocks_cap=2)
    made.arrive(prompt(2, 8), 20)
    with pytest.raises(RequestError, match="may need 7"):
        made.scheduler.reconfigure(kv_blocks_cap=6)
    made.scheduler.reconfigure(kv_blocks_cap=7)
    made.drain()


@pytest.mark.parametrize("cap", [0, -1, 17])
def test_a_cap_outside_the_pool_is_refused(cap: int) -> None:
    made = world()
    with pytest.raises(RequestError, match="between 1 and 16"):
        made.scheduler.reconfigure(kv_blocks_cap=cap)


@pytest.mark.parametrize("change", [{"max_num_seqs": 0}, {"chunk_size": 3}, {"max_num_seqs": 17}])
def test_a_refused_change_changes_nothing(change: dict[str, int]) -> None:
    made = world()
    before = made.scheduler.config
    with pytest.raises(RequestError):
        made.scheduler.reconfigure(**change, kv_blocks_cap=8)
    assert made.scheduler.config is before
    assert made.scheduler.pool.cap == 16
