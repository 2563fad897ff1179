"""Runs plans against the scripted server."""

from __future__ import annotations

import itertools
from typing import Any

from tests.tuner.fake_server import (
    FakeServer,
    Script,
)
from tuner.endpoint import Endpoint
from tuner.load import LoadPlan, LoadResult, generate
from tuner.workload import parse_workload


def plan(server: FakeServer | None, workload: str, send_s: float = 30.0, **more: Any) -> LoadPlan:
    url = server.url if server is not None else "http://127.0.0.1:1"
    endpoint = more.pop("endpoint", None) or Endpoint(url, "fake", token_ids=True)
    return LoadPlan(endpoint, parse_workload(workload), 0, send_s, **more)


def run(script: Script | None, workload: str, send_s: float = 30.0, **more: Any) -> LoadResult:
    with FakeServer(script) as server:
        return generate(plan(server, workload, send_s, **more))


def times_of(workload: str, send_s: float) -> list[float]:
    times = parse_workload(workload).arrivals.times(0, send_s)
    return list(itertools.takewhile(lambda at_s: at_s < send_s, times))
