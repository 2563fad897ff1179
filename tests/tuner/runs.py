"""Records and measurements made by hand."""

from __future__ import annotations

import math
from typing import Any

from tuner.endpoint import Endpoint
from tuner.figures import lag_p99_s
from tuner.measure import Measurement, summarize
from tuner.records import RequestRecord
from tuner.server_side import ServerSide
from tuner.slo import SloSet
from tuner.workload import parse_workload


def good(
    index: int,
    *,
    at_s: float = 0.0,
    ttft_s: float = 0.05,
    gap_s: float = 0.01,
    output: int = 4,
    lag_s: float = 0.0,
) -> RequestRecord:
    times = [at_s + ttft_s + i * gap_s for i in range(output)]
    return RequestRecord(
        index, at_s, sent_s=at_s + lag_s, first_byte_s=times[0], first_token_s=times[0],
        first_answer_token_s=times[0], end_s=times[-1], chunk_times_s=times,
        chunk_tokens=[1] * output, wanted_prompt_tokens=8, wanted_output_tokens=output,
        prompt_tokens=8, output_tokens=output, http_status=200, finish_reason="length", state="ok",
    )  # fmt: skip


def failed(index: int, *, at_s: float = 0.0, wanted: int = 4) -> RequestRecord:
    return RequestRecord(
        index, at_s, sent_s=at_s, end_s=at_s + 0.001, http_status=503, error="HTTP 503",
        wanted_output_tokens=wanted, state="failed",
    )  # fmt: skip


def running(index: int, at_s: float, first_token_s: float = math.nan) -> RequestRecord:
    """Still without an end when the measurement was cut off."""
    chunks = [] if math.isnan(first_token_s) else [first_token_s]
    return RequestRecord(
        index, at_s, sent_s=at_s, first_token_s=first_token_s, chunk_times_s=chunks,
        chunk_tokens=[1] * len(chunks), wanted_output_tokens=4,
    )  # fmt: skip


def run(
    records: list[RequestRecord],
    slos: SloSet | None = None,
    *,
    end_s: float = 10.0,
    server: ServerSide | None = None,
    price_per_hour: float | None = None,
    workload: str = "prompt=8,output=4,concurrency=4",
) -> Measurement:
    fields: dict[str, Any] = {"server": server, "price_per_hour": price_per_hour}
    made = Measurement(
        endpoint=Endpoint("http://127.0.0.1:1", "m"), workload=parse_workload(workload), seed=0,
        window_s=(0.0, end_s), began_unix_s=0.0, records=records, lag_p99_s=lag_p99_s(records),
        **fields,
    )  # fmt: skip
    return summarize(made, slos)
