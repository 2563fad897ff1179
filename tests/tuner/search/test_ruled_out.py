"""What arithmetic rules out is never started, and is told."""

from __future__ import annotations

import pytest

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.errors import UserError
from tuner.search.budget import parse_budget
from tuner.search.optimize import optimize
from tuner.search.ruled_out import Arithmetic, arithmetic
from tuner.workload import parse_workload

INFO = {"num_kv_blocks": 100, "block_size": 16}


def of(load: str) -> Arithmetic:
    return arithmetic(INFO, 0.9, [parse_workload(load)])


def test_a_pool_smaller_than_one_request() -> None:
    rules = of("prompt=900,output=100,concurrency=2")
    assert rules.why_not({"gpu_memory_utilization": 0.9}) == ""
    assert "no single request of 1000 tokens" in rules.why_not({"gpu_memory_utilization": 0.5})


def test_a_pool_that_a_knob_sizes() -> None:
    rules = arithmetic({"block_size": 16}, 0.0, [parse_workload("prompt=900,output=100,rate=1")])
    assert rules.why_not({"num_gpu_blocks_override": 63}) == ""
    assert "of 992 tokens holds no" in rules.why_not({"num_gpu_blocks_override": 62})
    assert rules.why_not({"num_gpu_blocks_override": 62, "block_size": 32}) == ""
    assert Arithmetic(1000).why_not({"num_gpu_blocks_override": 1}) == ""  # of blocks not known


def test_a_length_that_allows_no_request() -> None:
    rules = Arithmetic(1000)
    assert rules.why_not({"max_model_len": 1000}) == ""
    assert "max_model_len 999 is less than the 1000 tokens" in rules.why_not({"max_model_len": 999})
    assert rules.why_not({"max_model_len": "auto"}) == ""


def test_a_chunk_below_the_sequences() -> None:
    rules = Arithmetic(0)
    assert "chunk_size below max_num_seqs" in rules.why_not({"max_num_seqs": 64, "chunk_size": 32})
    assert rules.why_not({"max_num_seqs": 64, "chunk_size": 64}) == ""


def test_what_is_not_known_rules_nothing_out() -> None:
    low = {"gpu_memory_utilization": 0.1}
    assert of("prompt=lognormal(900,1),output=100,rate=1").why_not(low) == ""
    assert arithmetic({}, 0.9, [parse_workload("prompt=900,output=100,rate=1")]).why_not(low) == ""
    assert of("prompt=900,output=100,rate=1").why_not({"gpu_memory_utilization": "auto"}) == ""


def test_ruled_out_points_are_never_applied_and_counted() -> None:
    rules = of("prompt=900,output=100,concurrency=2")
    target = FakeTarget()
    search = search_on(Surface(target), budget=parse_budget("20 trials"), arithmetic=rules)
    optimize(search)
    assert all(config["gpu_memory_utilization"] >= 0.56 for config in target.applied)
    assert sum(rules.told.values()) > 0
    assert all("no single request" in why for why in rules.told)


def test_a_baseline_that_cannot_work_is_refused_before_anything_starts() -> None:
    rules = arithmetic(INFO, 0.9, [parse_workload("prompt=2000,output=100,concurrency=2")])
    target = FakeTarget()
    search = search_on(Surface(target), budget=parse_budget("20 trials"), arithmetic=rules)
    with pytest.raises(UserError, match="baseline cannot work: a KV cache of 1600 tokens"):
        optimize(search)
    assert target.applied == []
    assert float(DEFAULTS["gpu_memory_utilization"]) == 0.9


@pytest.mark.parametrize("odd", ["x", None, [], float("inf"), float("nan")])
def test_what_a_server_tells_in_no_number_is_not_known(odd: object) -> None:
    loads = [parse_workload("prompt=900,output=100,rate=1")]
    rules = arithmetic({"num_kv_blocks": odd, "block_size": 16}, 0.9, loads)
    assert rules.pool_tokens == 0
