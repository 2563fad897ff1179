"""A start that is fine is not yet a configuration that is: the most it may hold at once is tried.

Owns one short burst after a start: a full step of prompts and as many sequences as may run. What
has no memory for that fails here, within seconds, and not in the middle of a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tuner.endpoint import HIGHEST_ID, LOWEST_ID, Endpoint
from tuner.targets import http
from tuner.targets.base import Setting, TargetError

MOST_SEQUENCES = 256
MOST_TOKENS = 16_384
OUTPUT_TOKENS = 4
USUAL_SEQUENCES, USUAL_TOKENS = 64, 2048
"""Where the server works its limits out by itself."""

BURST_S = 120.0


def peak_prompts(config: Mapping[str, Setting], max_model_len: int | None) -> list[int]:
    """Lengths of the prompts that fill one step and every place in the batch, in tokens."""
    seqs = min(_number(config, "max_num_seqs", USUAL_SEQUENCES), MOST_SEQUENCES)
    tokens = min(_number(config, "chunk_size", USUAL_TOKENS), MOST_TOKENS)
    longest = max(1, (max_model_len or tokens + OUTPUT_TOKENS) - OUTPUT_TOKENS)
    return [max(1, min(longest, -(-tokens // seqs)))] * seqs


def try_peak(endpoint: Endpoint, config: Mapping[str, Setting]) -> str:
    """Send the burst; "" when every request is answered, else why one was not."""
    lengths = peak_prompts(config, endpoint.max_model_len)
    with ThreadPoolExecutor(len(lengths)) as pool:
        faults = list(pool.map(lambda n: _fault(endpoint, n), lengths))
    failed = [fault for fault in faults if fault]
    return f"{len(failed)} of {len(faults)} requests at once failed: {failed[0]}" if failed else ""


def _fault(endpoint: Endpoint, length: int) -> str:
    body: dict[str, Any] = {"model": endpoint.model, "max_tokens": OUTPUT_TOKENS}
    if endpoint.forced_lengths:
        body |= {"ignore_eos": True, "min_tokens": OUTPUT_TOKENS}
    span = HIGHEST_ID - LOWEST_ID
    ids = [LOWEST_ID + (7 * length + index) % span for index in range(length)]
    body["prompt"] = ids if endpoint.token_ids else "word " * length
    try:
        http.call(endpoint.generate_url, body, api_key=endpoint.api_key, timeout_s=BURST_S)
    except http.HttpRefusalError as refusal:
        return f"HTTP {refusal.status}: {refusal.reason}" if refusal.status >= 500 else ""
    except TargetError as error:
        return error.reason
    return ""


def _number(config: Mapping[str, Setting], name: str, usual: int) -> int:
    value = config.get(name)
    return usual if value is None or isinstance(value, str) else int(value)
