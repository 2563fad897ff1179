"""Writes a run in the form of GuideLLM's JSON report (schema version 2, GuideLLM 0.8).

Its terms, not ours, hold in the file: latencies start at the actual send (`request_start`), ours at
the scheduled one (`targeted_start`; the difference is `request_dispatch_delay`); ITL is the mean
gap of a request; percentiles are of successful requests. Requests are written one by one, so that a
long run needs no memory for its text.
"""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any, BinaryIO

import numpy as np
import orjson

from tuner.errors import UserError
from tuner.exchange.distributions import summary
from tuner.exchange.guidellm_metrics import metrics
from tuner.exchange.guidellm_requests import STATUS, Floats, Requests, request_dicts, totals
from tuner.exchange.run import Run
from tuner.workload import Workload, parse_workload

FORM = "0.8.1"


def write_guidellm(run: Run, out: BinaryIO) -> None:
    requests = Requests.of(run)
    workload = parse_workload_or_none(run.workload)
    head = {"metadata": _metadata(), "config": _config(run, workload)}
    out.write(orjson.dumps(head)[:-1] + b',"benchmarks":[')
    body = _benchmark(requests, workload)
    out.write(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)[:-1] + b',"requests":{')
    for state, status in STATUS.items():
        out.write(b'"' + status.encode() + b'":[')
        for position, request in enumerate(request_dicts(requests, state)):
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
        "metrics": metrics(requests, closed=workload is None or workload.arrivals.closed),
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


def _state(requests: Requests, first: float, last: float) -> dict[str, Any]:
    counts = totals(requests)
    return {
        "node_id": 0,
        "num_processes": 1,
        "start_time": requests.run.began_unix_s,
        "end_time": last,
        "start_requests_time": first,
        "end_requests_time": last,
        "created_requests": counts["total"],
        "processed_requests": counts["total"],
        "successful_requests": counts["successful"],
        "errored_requests": counts["errored"],
        "cancelled_requests": counts["incomplete"],
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
        "requests_made": totals(requests),
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


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0
