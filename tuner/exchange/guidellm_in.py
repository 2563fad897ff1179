"""Reads GuideLLM's JSON report: 0.4 to 0.8 (timings in `info`) and 0.2 to 0.3 (flat times).

GuideLLM keeps the first and the last token of a request and how many there were, not each one's
time: TTFT, TPOT and E2E are exact, gaps between tokens are not known. Requests of an open loop are
due at `targeted_start`; those of a closed loop when they were sent.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tuner.errors import UserError
from tuner.exchange.imported import (
    Source,
    count,
    imported,
    moment,
    number,
    one_line,
    owed_tokens,
    to_end,
)
from tuner.exchange.run import Run
from tuner.records import RequestRecord, RequestState
from tuner.workload import parse_workload

FORMAT = "guidellm"
SCHEDULED = ("constant", "poisson", "async", "replay", "trace")
"""Strategies whose requests are due at a time of their own."""

STATES: dict[str, RequestState] = {
    "successful": "ok", "errored": "failed", "incomplete": "censored",
}  # fmt: skip
NO_GAPS = "GuideLLM keeps the first and last token of a request, not the time of each"
NO_LAG = (
    "a closed loop of GuideLLM has no time at which a request was due: the load generator's own "
    "lag is unknown"
)
RATES = ("output_tps", "total_tps", "rps", "goodput", "cost_per_mtok")


def is_guidellm(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list)


def read_guidellm(document: Mapping[str, Any], name: str) -> list[Run]:
    """One run for each benchmark of the report. Raises UserError saying where it does not fit."""
    metadata = document.get("metadata")
    version = str(metadata.get("guidellm_version") or "") if isinstance(metadata, dict) else ""
    benchmarks = document["benchmarks"]
    if not benchmarks:
        raise UserError(f"{name} is a GuideLLM report without a benchmark")
    several = len(benchmarks) > 1
    runs = []
    for number_, benchmark in enumerate(benchmarks, 1):
        called = f"{name}#{number_}" if several else name
        try:
            runs.append(_benchmark(benchmark, called, version))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{called} is no GuideLLM benchmark known here ({error!r})") from error
    return runs


def _benchmark(benchmark: Mapping[str, Any], name: str, version: str) -> Run:
    flat = "run_stats" in benchmark
    strategy = (benchmark["args"] if flat else benchmark["config"])["strategy"]
    scheduled = strategy.get("type_") in SCHEDULED
    if flat:
        zero_s = number(benchmark["run_stats"]["start_time"], f"{name}: start_time")
        window = (benchmark["start_time"], benchmark["end_time"])
    else:
        times = benchmark["scheduler_metrics"]
        zero_s = number(times["start_time"], f"{name}: start_time")
        window = (times["measure_start_time"], times["measure_end_time"])
    records = []
    for told, state in _requests(benchmark):
        record = (_flat if flat else _timed)(told, state, zero_s, scheduled)
        if record is not None:
            records.append(record)
    records.sort(key=lambda record: record.scheduled_s)
    _name(records)
    owed_tokens(records)
    start_s, end_s = (number(at, f"{name}: the window") - zero_s for at in window)
    if not benchmark.get("warmup_duration") and records:
        start_s = min(start_s, records[0].scheduled_s)  # the first was due just before it was sent
    own = {} if flat else _of_slotune(benchmark["config"])
    version = version or ("0.2 or 0.3" if flat else "")
    source = Source(FORMAT, version + own.get("by", ""), name, _load(strategy),
                    _unknown(benchmark, records, scheduled))  # fmt: skip
    backend = benchmark["worker"] if flat else benchmark["config"].get("backend") or {}
    return imported(
        source,
        records,
        to_end(start_s, end_s, records),
        zero_s,
        url=str(backend.get("target") or backend.get("backend_target") or ""),
        model=str(backend.get("model") or backend.get("backend_model") or ""),
        arrivals=_arrivals(strategy, len(records)),
        seed=own.get("seed", strategy.get("random_seed")),
        workload=own.get("workload", ""),
    )


def _of_slotune(config: Mapping[str, Any]) -> dict[str, Any]:
    """What slotune has written beside GuideLLM's own words: by, workload and seed, as far as they
    are there. A workload that names a file is left out: the file is its own."""
    environment, asked = config.get("environment"), config.get("requests")
    by = str(environment.get("written_by") or "") if isinstance(environment, Mapping) else ""
    if not by.startswith("slotune ") or not isinstance(asked, Mapping):
        return {}
    found: dict[str, Any] = {"by": f", written by {one_line(by)}"}
    text, seed = asked.get("workload"), asked.get("seed")
    if isinstance(text, str) and "file=" not in text and "trace=" not in text:
        with contextlib.suppress(UserError):
            found["workload"] = str(parse_workload(text))
    return found | ({"seed": seed} if isinstance(seed, int) and seed >= 0 else {})


def _requests(benchmark: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], RequestState]]:
    for kind, state in STATES.items():
        for told in benchmark["requests"].get(kind) or ():
            yield told, state


def _timed(
    told: dict[str, Any], state: RequestState, zero_s: float, scheduled: bool
) -> RequestRecord | None:
    """A request of 0.4 or later; None when it was never due before the end."""
    info = told["info"]
    timings = info["timings"]

    def at(*names: str) -> float:
        values = [moment(timings.get(name), zero_s, name) for name in names]
        return next((value for value in values if not math.isnan(value)), math.nan)

    sent_s = at("request_start", "resolve_start")
    due_s = at("targeted_start") if scheduled else sent_s
    if math.isnan(due_s):
        return None
    record = RequestRecord(0, due_s, sent_s=sent_s, state=state)
    record.first_byte_s = at("first_request_iteration")
    record.end_s = at("request_end", "resolve_end")
    record.error = one_line(str(info.get("error") or "")) if state == "failed" else ""
    record.prompt_tokens = _count(told, "prompt_tokens", "input_metrics")
    tokens = _count(told, "output_tokens", "output_metrics")
    first_s, last_s = at("first_token_iteration"), at("last_token_iteration")
    _tokens(record, tokens, first_s, last_s)
    answer_s = at("first_output_token_iteration")
    record.first_answer_token_s = first_s if math.isnan(answer_s) else answer_s
    return record


def _flat(
    told: dict[str, Any], state: RequestState, zero_s: float, scheduled: bool
) -> RequestRecord | None:
    """A request of 0.2 or 0.3."""
    sent_s = moment(told["start_time"], zero_s, "start_time")
    due = (told.get("scheduler_info") or {}).get("targeted_start_time")
    due_s = moment(due, zero_s, "targeted_start_time") if scheduled else sent_s
    due_s = sent_s if math.isnan(due_s) else due_s
    if math.isnan(due_s):
        return None
    record = RequestRecord(0, due_s, sent_s=sent_s, state=state)
    record.end_s = moment(told["end_time"], zero_s, "end_time")
    record.error = one_line(str(told.get("error") or "")) if state == "failed" else ""
    record.prompt_tokens = count(told.get("prompt_tokens"), "prompt_tokens")
    first_s = moment(told.get("first_token_time"), zero_s, "first_token_time")
    last_s = moment(told.get("last_token_time"), zero_s, "last_token_time")
    _tokens(record, count(told.get("output_tokens"), "output_tokens"), first_s, last_s)
    record.first_answer_token_s = first_s
    return record


def _tokens(record: RequestRecord, tokens: int, first_s: float, last_s: float) -> None:
    """Tokens evenly between the first and the last, for the throughput; `itl` stays unknown."""
    record.output_tokens, record.first_token_s = tokens, first_s
    if record.state == "ok" and not tokens:
        record.state, record.error = "failed", "empty answer"
    if not tokens:
        return
    if math.isnan(first_s) or math.isnan(last_s):  # not streamed
        record.chunk_times_s, record.chunk_tokens = [record.end_s], [tokens]
        return
    record.chunk_times_s = np.linspace(first_s, last_s, tokens).tolist()
    record.chunk_tokens = [1] * tokens


def _name(records: list[RequestRecord]) -> None:
    for index, record in enumerate(records):
        record.index = record.session = index
        record.turn = 0


def _count(told: Mapping[str, Any], name: str, metrics: str) -> int:
    counted = told.get(name)
    if counted is None:
        usage = told.get(metrics) or {}
        counted = usage.get("total_tokens") or usage.get("text_tokens")
    return count(counted, name)


def _unknown(
    benchmark: Mapping[str, Any], records: list[RequestRecord], scheduled: bool
) -> dict[str, str]:
    """What the report cannot tell; rates not where it keeps only a sample of its requests."""
    unknown = {"itl": NO_GAPS} | ({} if scheduled else {"lag": NO_LAG})
    made = benchmark.get("request_totals") or benchmark["scheduler_metrics"]["requests_made"]
    total = int(made.get("successful") or 0) + int(made.get("errored") or 0)
    kept = sum(record.state != "censored" for record in records)
    why = f"the report keeps {kept} of {total} requests (a sample)"
    return unknown | (dict.fromkeys(RATES, why) if kept < total else {})


def _load(strategy: Mapping[str, Any]) -> str:
    kind = str(strategy.get("type_", "unknown"))
    shown = [f"{key} {strategy[key]:g}" for key in ("streams", "rate") if strategy.get(key)]
    return ", ".join([kind, *shown])


def _arrivals(strategy: Mapping[str, Any], requests: int) -> str:
    rate = strategy.get("rate")
    if isinstance(rate, (int, float)) and rate > 0:
        constant = strategy.get("type_") != "poisson"
        return f"rate={rate:g}" + (",arrivals=constant" if constant else "")
    streams = 1 if strategy.get("type_") == "synchronous" else strategy.get("streams")
    return f"concurrency={int(streams or max(1, requests))}"
