"""Settings that change what is loaded and how many devices serve it, as each engine says them."""

from __future__ import annotations

import pytest

from tuner.targets.base import Setting
from tuner.targets.flags import AUTO, Dialect, flag_words, left_out, split_words

LOADED: dict[str, Setting] = {
    "quantization": "awq", "tensor_parallel_size": 2, "pipeline_parallel_size": 4,
    "data_parallel_size": 3,
}  # fmt: skip
WORDS: dict[Dialect, list[str]] = {
    "vllm": [
        "--quantization", "awq", "--tensor-parallel-size", "2", "--pipeline-parallel-size", "4",
        "--data-parallel-size", "3",
    ],
    "sglang": ["--quantization", "awq", "--tp-size", "2", "--pp-size", "4", "--dp-size", "3"],
    "slotune": [],
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_they_are_written_and_read_back(dialect: Dialect) -> None:
    assert flag_words(LOADED, dialect) == WORDS[dialect]
    assert left_out(LOADED, dialect) == []
    assert split_words([*WORDS[dialect], "--seed", "3"], [*LOADED], dialect) == (
        LOADED, ("--seed", "3"),
    )  # fmt: skip


def test_an_engine_without_them_says_what_it_leaves_out() -> None:
    assert flag_words(LOADED, "slotune") == WORDS["slotune"]
    assert left_out(LOADED, "slotune") == [*LOADED]


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_what_the_server_works_out_has_no_word(dialect: Dialect) -> None:
    assert flag_words({"quantization": AUTO, "data_parallel_size": "default"}, dialect) == []
