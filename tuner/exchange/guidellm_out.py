"""Writes a run in the form of GuideLLM's JSON report (schema version 2, GuideLLM 0.8).

Its terms, not ours, hold in the file: latencies start at the actual send (`request_start`), ours at
the scheduled one (`targeted_start`; the difference is `request_dispatch_delay`); ITL is the mean
gap of a request; percentiles are of successful requests. Requests are written one by one, so that a
long run needs no memory for its text.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from tuner.errors import UserError
from tuner.exchange.distributions import concurrency, rate, summary
from tuner.exchange.run import Run, in_window
from tuner.workload import Workload, parse_workload

FORM = "0.8.1"
STATUS = {"ok": "successful", "failed": "errored", "censored": "incomplete"}
INFO_STATUS = {"ok": "completed", "failed": "errored", "censored": "cancelled"}

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Requests:
    """A run's requests as arrays; times in Unix seconds, NaN where a time never came."""

    run: Run
    state: list[str]
    targeted: Floats
    sent: Floats
    first_byte: Floats
    first_token: Floats
    first_answer: Floats
    last_token: Floats
    end: Floats
    chunks: npt.NDArray[np.int64]
    prompt: Floats
    output: Floats

    @classmethod
    def of(cls, run: Run) -> Requests:
        def unix(name: str) -> Floats:
            return np.asarray(run.columns[name], dtype=float) + run.began_unix_s

        times = run.columns["chunk_times_s"]
        last = np.array([t[-1] if len(t) else math.nan for t in times], dtype=float)
        return cls(
            run=run, state=list(run.columns["state"]), targeted=unix("scheduled_s"),
            sent=unix("sent_s"), first_byte=unix("first_byte_s"),
            first_token=unix("first_token_s"), first_answer=unix("first_answer_token_s"),
            last_token=last + run.began_unix_s, end=unix("end_s"),
            chunks=np.array([len(t) for t in times], dtype=np.int64),
            prompt=np.asarray(run.columns["prompt_tokens"], dtype=float),
            output=np.asarray(run.columns["output_tokens"], dtype=float),
        )  # fmt: skip

    @property
    def window(self) -> tuple[float, float]:
        start_s, end_s = self.run.window_s
        return self.run.began_unix_s + start_s, self.run.began_unix_s + end_s


def write_guidellm(run: Run, out: BinaryIO) -> None:
    requests = Requests.of(run)
    workload = parse_workload_or_none(run.workload)
    head = {"metadata": _metadata(), "config": _config(run, workload)}
    out.write(orjson.dumps(head)[:-1] + b',"benchmarks":[')
    body = _benchmark(requests, workload)
    out.write(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)[:-1] + b',"requests":{')
    for state, status in STATUS.items():
        out.write(b'"' + status.encode() + b'":[')
        for position, request in enumerate(_requests(requests, state)):
            out.write((b"," if position else b"") + orjson.dumps(request))
        out.write(b"],")
    out.write(b'"total":null}}],"conclusions":[]}')


def parse_workload_or_none(text: str) -> Workload | None:
    try:
        return parse_workload(text) if text else None
    except UserError:  # a trace that is gone
        return None


def _metadata() -> dict[str, Any]:
    return {
        "version": 2,
        "guidellm_version": FORM,
        "python_version": platform.python_version(),
        "platform": platform.platform(),
    }


def _strategy(run: Run, workload: Workload | None) -> dict[str, Any]:
    closed = workload is None or workload.arrivals.closed
    level = workload.arrivals.level if workload is not None else 1
    if closed:
        streams = max(1, round(level))
        limits = {"worker_count": 1, "max_concurrency": streams}
        return {"type_": "concurrent", **limits, "streams": streams, "rampup_duration": 0.0}
    kind = "constant" if workload and workload.arrivals.kind == "constant" else "poisson"
    seed = {"random_seed": run.seed or 0} if kind == "poisson" else {}
    return {"type_": kind, "worker_count": 1, "max_concurrency": None, "rate": level, **seed}


def _config(run: Run, workload: Workload | None) -> dict[str, Any]:
    strategy = _strategy(run, workload)
    profile: dict[str, Any] = {"kind": strategy["type_"]}
    profile |= (
        {"streams": [strategy["streams"]]}
        if "streams" in strategy
        else {"rate": [strategy["rate"]]}
    )
    data = {
        "kind": "synthetic_text",
        "prompt_tokens": max(1, round(workload.prompt.mean)) if workload else 1,
        "output_tokens": max(1, round(workload.output.mean)) if workload else 1,
    }
    labels = {"written_by": f"slotune {version('slotune')}", "run": run.name}
    if run.workload:
        labels["workload"] = run.workload
    seconds = max(1, round(run.window_s[1]))
    spec = {
        "backend": {"kind": "openai_http", "target": run.url, "model": run.model},
        "profile": profile,
        "constraints": [{"kind": "max_duration", "seconds": seconds}],
        "data": [data],
        "seed": {"kind": "static", "value": run.seed or 0},
    }
    return {"metadata": {"labels": labels}, "spec": spec}


def _benchmark(requests: Requests, workload: Workload | None) -> dict[str, Any]:
    run = requests.run
    start, end = requests.window
    first, last = _span(requests)
    config = {
        "id_": run.name,
        "run_id": run.study or run.name,
        "run_index": 0,
        "strategy": _strategy(run, workload),
        "constraints": {},
        "sample_size": None,
        "prefer_response_metrics": True,
        "slo": None,
        "confidence": None,
        "warnings": [],
        "profile": _config(run, workload)["spec"]["profile"],
        "requests": {"workload": run.workload, "seed": run.seed},
        "backend": {"kind": "openai_http", "target": run.url, "model": run.model},
        "environment": {"written_by": f"slotune {version('slotune')}"},
    }
    return {
        "type_": "generative_benchmark",
        "config": config,
        "scheduler_state": _state(requests, first, last),
        "scheduler_metrics": _scheduler(requests, first, last),
        "metrics": _metrics(requests, closed=workload is None or workload.arrivals.closed),
        "warnings": [],
        "start_time": start,
        "end_time": end,
        "duration": end - start,
        "warmup_duration": max(0.0, start - first),
        "cooldown_duration": max(0.0, last - end),
    }


def _span(requests: Requests) -> tuple[float, float]:
    """First send and last end of any request."""
    ends = requests.end[~np.isnan(requests.end)]
    sends = requests.sent[~np.isnan(requests.sent)]
    start, end = requests.window
    return float(min([start, *sends[:1], sends.min() if len(sends) else start])), float(
        max(end, ends.max() if len(ends) else end)
    )


def _totals(requests: Requests, chosen: Mask | None = None) -> dict[str, int]:
    states = np.array(requests.state)
    states = states if chosen is None else states[chosen]
    counts = {status: int((states == state).sum()) for state, status in STATUS.items()}
    return counts | {"total": len(states)}


def _state(requests: Requests, first: float, last: float) -> dict[str, Any]:
    totals = _totals(requests)
    return {
        "node_id": 0,
        "num_processes": 1,
        "start_time": requests.run.began_unix_s,
        "end_time": last,
        "start_requests_time": first,
        "end_requests_time": last,
        "created_requests": totals["total"],
        "processed_requests": totals["total"],
        "successful_requests": totals["successful"],
        "errored_requests": totals["errored"],
        "cancelled_requests": totals["incomplete"],
    }


def _scheduler(requests: Requests, first: float, last: float) -> dict[str, Any]:
    start, end = requests.window
    lag, took = requests.sent - requests.targeted, requests.end - requests.sent
    sleeps = ("queued_time_avg", "resolve_start_delay_avg", "request_start_delay_avg")
    after = ("resolve_end_delay_avg", "finalized_delay_avg", "processed_delay_avg")
    return {
        "start_time": requests.run.began_unix_s,
        "request_start_time": first,
        "measure_start_time": start,
        "measure_end_time": end,
        "request_end_time": last,
        "end_time": last,
        "requests_made": _totals(requests),
        "generation_delay": summary(np.empty(0)),
        **dict.fromkeys(sleeps, 0.0),
        "resolve_targeted_start_delay_avg": _mean(lag),
        "request_targeted_start_delay_avg": _mean(lag),
        "request_time_avg": _mean(took),
        "resolve_time_avg": _mean(took),
        **dict.fromkeys(after, 0.0),
        "dataset_incomplete": True,
        "strategy_type": "slotune",
    }


def _metrics(requests: Requests, *, closed: bool) -> dict[str, Any]:
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
        "request_totals": _totals(requests, inside),
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


def _requests(requests: Requests, state: str) -> Iterator[dict[str, Any]]:
    """GuideLLM's record of each request in that state, its computed fields included."""
    columns = requests.run.columns
    errors = columns.get("error", [""] * len(requests.state))
    sessions = columns.get("session", range(len(requests.state)))
    turns = columns.get("turn", [0] * len(requests.state))
    for i in (i for i, found in enumerate(requests.state) if found == state):
        sent, end = _or_none(requests.sent[i]), _or_none(requests.end[i])
        first, last = _or_none(requests.first_token[i]), _or_none(requests.last_token[i])
        targeted = float(requests.targeted[i])
        prompt, output = int(requests.prompt[i]), int(requests.output[i])
        name = str(columns["index"][i])
        timings = {
            "targeted_start": targeted,
            "queued": targeted,
            "dequeued": sent,
            "scheduled_at": sent,
            "resolve_start": sent,
            "request_start": sent,
            "first_request_iteration": _or_none(requests.first_byte[i]),
            "first_token_iteration": first,
            "first_output_token_iteration": _or_none(requests.first_answer[i]),
            "last_token_iteration": last,
            "last_request_iteration": last,
            "request_iterations": int(requests.chunks[i]),
            "token_iterations": int(requests.chunks[i]),
            "request_end": end,
            "resolve_end": end,
            "finalized": end,
        }
        info = {
            "request_id": name,
            "conversation_id": str(sessions[i]),
            "turn_index": int(turns[i]),
            "status": INFO_STATUS[state],
            "scheduler_node_id": 0,
            "scheduler_process_id": 0,
            "scheduler_start_time": requests.run.began_unix_s,
            "timings": timings,
            "error": errors[i] or None,
            "traceback": None,
            "started_at": sent,
            "completed_at": end,
        }
        yield {
            "type_": "generative_request_stats",
            "request_id": name,
            "response_id": None,
            "request_args": None,
            "output": None,
            "info": info,
            "input_metrics": {"text_tokens": prompt, "total_tokens": prompt},
            "output_metrics": {"text_tokens": output, "total_tokens": output},
            "request_start_time": sent,
            "request_end_time": end,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "total_tokens": prompt + output,
            "request_latency": _minus(end, sent),
            "request_dispatch_delay": _minus(sent, targeted),
            "request_scheduled_latency": _minus(end, targeted),
            "time_to_first_token_ms": _minus(first, sent, 1e3),
            "time_per_output_token_ms": _minus(last, sent, 1e3 / output) if output else None,
            "inter_token_latency_ms": _minus(last, first, 1e3 / (output - 1))
            if output > 1
            else None,
        }


def _or_none(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def _minus(a: float | None, b: float | None, scale: float = 1.0) -> float | None:
    return None if a is None or b is None else (a - b) * scale


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0
