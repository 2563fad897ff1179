"""A run's requests in GuideLLM's terms: as arrays, counted by status, and one by one.

Latencies start at the actual send (`request_start`), not at the scheduled one (`targeted_start`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.exchange.run import Run

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


def totals(requests: Requests, chosen: Mask | None = None) -> dict[str, int]:
    states = np.array(requests.state)
    states = states if chosen is None else states[chosen]
    counts = {status: int((states == state).sum()) for state, status in STATUS.items()}
    return counts | {"total": len(states)}


def request_dicts(requests: Requests, state: str) -> Iterator[dict[str, Any]]:
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
