"""Reads what `vllm bench serve --save-result --save-detailed` writes.

Start times are vLLM's own monotonic clock; the earliest start is our zero. It measures latencies
from the send and keeps no time at which a request was due, so its generator's lag is unknown; the
time a request waited for --max-concurrency counts where a rate set the schedule, as vLLM has it in
its "including queue" figures, and not in a closed loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from tuner.errors import UserError
from tuner.exchange.imported import Source, count, imported, number, one_line, owed_tokens, to_end
from tuner.exchange.run import Run
from tuner.records import RequestRecord, spread_tokens

FORMAT = "vllm bench serve"
DETAILS = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
NO_LAG = (
    "the file does not tell when requests were due: latencies start at the send, and the load "
    "generator's own lag is unknown"
)


def is_vllm(document: Any) -> bool:
    return isinstance(document, dict) and {"total_input_tokens", "request_throughput"} <= set(
        document
    )


def read_vllm(document: Mapping[str, Any], name: str) -> Run:
    """Raises UserError for a file without details and for one whose lists do not fit."""
    _check(document, name)
    open_loop = document.get("request_rate") not in (None, "inf", math.inf)
    starts = [number(value, f"{name}: a start time") for value in document["start_times"]]
    queues = document.get("queue_times") or [0.0] * len(starts)
    waits = [number(value, f"{name}: a queue time") for value in queues]
    zero_s = min(start_s - wait_s for start_s, wait_s in zip(starts, waits, strict=True))
    records = []
    for index, (start_s, wait_s) in enumerate(zip(starts, waits, strict=True)):
        sent_s = start_s - zero_s
        record = RequestRecord(index, sent_s - wait_s if open_loop else sent_s, sent_s=sent_s)
        try:
            _fill(record, document, index)
        except (TypeError, ValueError, UserError) as error:
            raise UserError(f"{name}: request {index} cannot be read ({error})") from error
        records.append(record)
    owed_tokens(records)
    duration_s = number(document.get("duration"), f"{name}: duration")
    source = Source(FORMAT, "", name, _load(document), {"lag": NO_LAG})
    return imported(
        source,
        records,
        to_end(0.0, duration_s, records),
        _began(document.get("date"), duration_s, name),
        url=str(document.get("base_url") or ""),
        model=str(document.get("model_id") or ""),
        arrivals=_arrivals(document, len(records)),
    )


def _check(document: Mapping[str, Any], name: str) -> None:
    if "input_sequence_throughput" in document:
        raise UserError(f"{name} is of an embedding benchmark: it has no tokens to judge")
    missing = [key for key in DETAILS if key not in document]
    if "ttfts" in missing:
        raise UserError(
            f"{name} holds only totals, from which no percentile can be judged again: run "
            "`vllm bench serve` with --save-result --save-detailed"
        )
    if missing:
        older = " (written by a vLLM older than its per-request start times)"
        raise UserError(
            f"{name} lacks {', '.join(missing)}{older if 'start_times' in missing else ''}: "
            "what was sent when cannot be told"
        )
    for key in (*DETAILS, "queue_times"):
        if not isinstance(document.get(key, []), list):
            raise UserError(f"{name}: {key} is no list")
    queued = ["queue_times"] if document.get("queue_times") else []
    lengths = {key: len(document[key]) for key in (*DETAILS, *queued)}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} {count}" for key, count in lengths.items())
        raise UserError(f"{name}: the lists of requests differ in length ({told})")
    if not document["start_times"]:
        raise UserError(f"{name} holds no requests: each of its lists is empty")


def _fill(record: RequestRecord, document: Mapping[str, Any], index: int) -> None:
    """Everything after the send. A request without a token has failed, whatever else it says."""
    record.prompt_tokens = record.wanted_prompt_tokens = count(
        document["input_lens"][index], "its prompt length"
    )
    error = document["errors"][index]
    tokens = count(document["output_lens"][index], "its output length")
    if error or not tokens:
        record.state = "failed"
        record.end_s = record.sent_s  # when it failed is not told: at once is the least
        record.error = one_line(str(error or "")) or "empty answer"
        return
    record.state, record.output_tokens = "ok", tokens
    at_s = record.sent_s + number(document["ttfts"][index], "its TTFT")
    record.first_token_s = record.first_answer_token_s = at_s
    record.chunk_times_s = [at_s]
    for gap_s in document["itls"][index]:
        at_s += number(gap_s, "a gap")
        record.chunk_times_s.append(at_s)
    record.chunk_tokens = spread_tokens(tokens, len(record.chunk_times_s), first=1)
    record.end_s = at_s


def _load(document: Mapping[str, Any]) -> str:
    parts = [f"{document.get('num_prompts', '?')} prompts"]
    parts.append(f"request rate {document.get('request_rate', 'inf')}")
    if document.get("max_concurrency"):
        parts.append(f"at most {document['max_concurrency']} at once")
    if document.get("burstiness") not in (None, 1.0):
        parts.append(f"burstiness {document['burstiness']}")
    if document.get("ramp_up_strategy"):
        parts.append(f"{document['ramp_up_strategy']} ramp-up")
    return ", ".join(parts)


def _arrivals(document: Mapping[str, Any], requests: int) -> str:
    rate = document.get("request_rate")
    if isinstance(rate, (int, float)) and 0 < rate < math.inf:
        burstiness = number(document.get("burstiness") or 1.0, "burstiness")
        return f"rate={rate:g}" + ("" if burstiness == 1 else f",burstiness={burstiness:g}")
    most = number(document.get("max_concurrency") or requests, "max_concurrency")
    return f"concurrency={max(1, int(most))}"


def _began(date: Any, duration_s: float, name: str) -> float:
    """Unix time of the first send: the file's date is the local time of its end. 0 when untold."""
    if date is None:
        return 0.0
    try:
        return time.mktime(time.strptime(str(date), "%Y%m%d-%H%M%S")) - duration_s
    except (ValueError, OverflowError):
        why = f"its date {date!r:.40} is none; vLLM writes YYYYMMDD-HHMMSS"
        raise UserError(f"{name}: {why}") from None
