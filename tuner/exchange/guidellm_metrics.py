"""GuideLLM's figures of a run: distributions by status over the requests inside its window.

ITL is the mean gap of a request, TPOT its time since the send over all its tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.exchange.distributions import concurrency, rate, summary
from tuner.exchange.guidellm_requests import STATUS, Floats, Mask, Requests, totals
from tuner.exchange.run import in_window


def metrics(requests: Requests, *, closed: bool) -> dict[str, Any]:
    """Over the requests scheduled inside the window."""
    inside = in_window(requests.run)
    states = np.array(requests.state)
    chosen = {status: inside & (states == state) for state, status in STATUS.items()}
    chosen["total"] = inside
    e2e, output = requests.end - requests.sent, requests.output
    lag = requests.sent - requests.targeted
    with np.errstate(divide="ignore", invalid="ignore"):
        itl_ms = 1e3 * (requests.last_token - requests.first_token) / (output - 1)
        tpot_ms = 1e3 * (requests.last_token - requests.sent) / output
        per_chunk = output / requests.chunks
    itl_ms[output <= 1] = math.nan
    tpot_ms[output < 1] = per_chunk[requests.chunks == 0] = math.nan
    iter_tokens = np.where(requests.chunks > 1, (output - 1) / np.maximum(1, requests.chunks - 1),
                           math.nan)  # fmt: skip

    def of(values: Floats, weights: Floats | None = None) -> dict[str, Any]:
        return {
            status: summary(values[mask], None if weights is None else weights[mask])
            for status, mask in chosen.items()
        }

    ttft_ms = 1e3 * (requests.first_token - requests.sent)
    answer_ms = 1e3 * (requests.first_answer - requests.sent)
    nothing = np.full(len(states), math.nan)
    return {
        "request_totals": totals(requests, inside),
        "requests_per_second": _rates(requests, chosen, requests.end, np.ones(len(states))),
        "request_concurrency": {
            status: concurrency(requests.sent[mask], requests.end[mask], requests.window)
            for status, mask in chosen.items()
        },
        "request_latency": of(e2e),
        "request_dispatch_delay": None if closed else of(lag),
        "request_scheduled_latency": None if closed else of(requests.end - requests.targeted),
        "turn_predecessor_delay": None,
        "turn_scheduling_delay": None,
        "root_dispatch_delay": summary(lag[inside]),
        "request_streaming_iterations_count": of(requests.chunks.astype(float)),
        "prompt_token_count": of(requests.prompt),
        "output_token_count": of(output),
        "total_token_count": of(requests.prompt + output),
        "time_to_first_token_ms": of(ttft_ms),
        "time_to_first_output_token_ms": of(answer_ms),
        "time_per_output_token_ms": of(tpot_ms, output),
        "inter_token_latency_ms": of(itl_ms, np.maximum(0, output - 1)),
        "time_to_last_round_trip_ms": of(nothing),
        "avg_round_trip_time_ms": of(nothing),
        "prompt_tokens_per_second": _rates(requests, chosen, requests.first_token, requests.prompt),
        **_token_rates(requests, chosen),
        "output_tokens_per_iteration": of(per_chunk),
        "iter_tokens_per_iteration": of(iter_tokens),
        "text": {"tokens": None, "words": None, "characters": None},
        "image": dict.fromkeys(("tokens", "images", "pixels", "bytes")),
        "video": dict.fromkeys(("tokens", "frames", "seconds", "bytes")),
        "audio": dict.fromkeys(("tokens", "samples", "seconds", "bytes")),
        "tool_call": dict.fromkeys(("tokens", "mixed_tokens", "count")),
        "turns": None,
        "slo_attainment": None,
        "slo_determined_requests": 0,
        "request_goodput": None,
    }


def _rates(
    requests: Requests, chosen: dict[str, Mask], times: Floats, weights: Floats
) -> dict[str, Any]:
    return {
        status: rate(times[mask & ~np.isnan(times)], weights[mask & ~np.isnan(times)],
                     requests.window)
        for status, mask in chosen.items()
    }  # fmt: skip


def _token_rates(requests: Requests, chosen: dict[str, Mask]) -> dict[str, Any]:
    """Output and total tokens per second, each token at its own arrival."""
    zero = requests.run.began_unix_s
    columns = requests.run.columns
    output: dict[str, Any] = {}
    total: dict[str, Any] = {}
    for status, mask in chosen.items():
        rows = np.flatnonzero(mask).tolist()
        times = _flat([columns["chunk_times_s"][row] for row in rows]) + zero
        tokens = _flat([columns["chunk_tokens"][row] for row in rows])
        output[status] = rate(times, tokens, requests.window)
        first = requests.first_token[mask]
        prompt = requests.prompt[mask][~np.isnan(first)]
        both = np.concatenate([times, first[~np.isnan(first)]])
        total[status] = rate(both, np.concatenate([tokens, prompt]), requests.window)
    return {"output_tokens_per_second": output, "tokens_per_second": total}


def _flat(ragged: list[Any]) -> Floats:
    parts = [np.asarray(part, dtype=float) for part in ragged]
    return np.concatenate(parts) if parts else np.empty(0)
