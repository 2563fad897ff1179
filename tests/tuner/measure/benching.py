"""A short measurement of a scripted server."""

from __future__ import annotations

from typing import Any

from tests.tuner.fake_server import FakeServer
from tuner.endpoint import Api, Endpoint
from tuner.measure import Measurement, measure
from tuner.slo import parse_slos
from tuner.workload import parse_workload

CLOSED = "prompt=8,output=4,concurrency=2"


def bench(
    server: FakeServer,
    workload: str = CLOSED,
    *,
    api: Api = "completions",
    slo: str = "",
    duration_s: float = 1.0,
    warmup_s: float = 0.0,
    **options: Any,
) -> Measurement:
    endpoint = Endpoint(server.url, api=api, api_key=server.api_key).probe()
    slos = parse_slos([slo] if slo else [])
    return measure(
        endpoint,
        parse_workload(workload),
        duration_s=duration_s,
        warmup_s=warmup_s,
        slos=slos,
        **options,
    )
