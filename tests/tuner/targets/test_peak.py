"""The burst after a start: as many sequences and tokens as the configuration allows, no more."""

from __future__ import annotations

from tests.tuner.fake_engine import FakeEngine
from tuner.endpoint import Endpoint
from tuner.targets.peak import MOST_SEQUENCES, OUTPUT_TOKENS, peak_prompts, try_peak


def test_a_full_step_and_a_full_batch() -> None:
    assert peak_prompts({"max_num_seqs": 8, "chunk_size": 512}, None) == [64] * 8
    assert peak_prompts({"max_num_seqs": 3, "chunk_size": 10}, None) == [4] * 3
    assert peak_prompts({"max_num_seqs": 2, "chunk_size": 4096}, 1000) == [1000 - OUTPUT_TOKENS] * 2
    assert len(peak_prompts({"max_num_seqs": 10_000, "chunk_size": 10_000}, None)) == MOST_SEQUENCES
    assert peak_prompts({"max_num_seqs": "default"}, None) == [32] * 64


def test_it_is_sent_at_once() -> None:
    with FakeEngine(kind="vllm") as engine:
        endpoint = Endpoint(engine.url).probe()
        assert try_peak(endpoint, {"max_num_seqs": 16, "chunk_size": 64}) == ""
        assert len(engine.unstreamed) == 16
        assert {len(body["prompt"]) for body in engine.unstreamed} == {4}


def test_what_fails_is_told() -> None:
    with FakeEngine(kind="vllm") as engine:
        endpoint = Endpoint(engine.url).probe()
        engine.fail_above = 8  # from now on every request
        why = try_peak(endpoint, {"max_num_seqs": 4, "chunk_size": 64})
        assert why == "4 of 4 requests at once failed: HTTP 500: CUDA out of memory"
