"""What --set may tell of a server."""

from __future__ import annotations

import pytest

from tuner.diagnosis.settings import checked
from tuner.errors import UserError


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("max_num_seqs", "64", {"max_num_seqs": "64"}),
        ("--max-num-seqs", "64", {"max_num_seqs": "64"}),
        ("max_running_requests", "48", {"max_num_seqs": "48"}),
        ("max_num_batched_tokens", "8192", {"chunk_size": "8192"}),
        ("chunk_size", "8e3", {"chunk_size": "8000"}),
        ("max_num_seqs_high", "256", {"max_num_seqs_high": "256"}),
        ("num_gpu_blocks_override_high", "64", {"num_gpu_blocks_override_high": "64"}),
        ("gpu_memory_utilization", "0.9", {"gpu_memory_utilization": "0.9"}),
        ("enable_prefix_caching", "On", {"enable_prefix_caching": "true"}),
        ("kv_cache_dtype", "fp8", {"kv_cache_dtype": "fp8"}),
        ("num_gpu_blocks", "1000", {"num_kv_blocks": "1000"}),
        ("device", "cpu", {"device": "cpu"}),
        ("kv_cache_memory_bytes", "1073741824", {"kv_cache_memory_bytes": "1073741824"}),
    ],
)
def test_a_setting_by_any_of_its_names(name: str, value: str, taken: dict[str, str]) -> None:
    assert checked({name: value}) == taken


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("foo", "1", "the diagnosis knows no such setting; it knows max_num_seqs, "),
        ("max_num_seq", "1", "did you mean max_num_seqs?"),
        ("max_num_seqs", "nan", "'nan' is not a whole number above 0"),
        ("max_num_seqs", "-5", "'-5' is not a whole number above 0"),
        ("max_num_seqs", "0", "'0' is not a whole number above 0"),
        ("max_num_seqs", "8.5", "'8.5' is not a whole number above 0"),
        ("chunk_size_high", "many", "'many' is not a whole number above 0"),
        ("gpu_memory_utilization", "inf", "'inf' is not a number above 0"),
        ("enable_prefix_caching", "maybe", "'maybe' is neither true nor false"),
    ],
)
def test_what_no_server_is_set_to(name: str, value: str, says: str) -> None:
    with pytest.raises(UserError, match=f"^--set {name}: ") as refused:
        checked({name: value})
    assert says in str(refused.value)
