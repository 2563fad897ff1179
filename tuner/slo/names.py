"""The one table of SLO metrics: names, aliases, units, and whether a statistic belongs to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "tok/s", "req/s", "share", "$"]


@dataclass(frozen=True, slots=True)
class SloMetric:
    """per_request: a latency of single requests, judged by a statistic over them."""

    name: str
    unit: Unit
    meaning: str
    aliases: tuple[str, ...] = ()
    per_request: bool = False


_TABLE = (
    SloMetric(
        "ttft", "s", "send to first token with text", ("time_to_first_token",), per_request=True
    ),
    SloMetric(
        "ttfat", "s", "send to first token of the answer, after any reasoning",
        ("time_to_first_answer_token",), per_request=True,
    ),
    SloMetric(
        "tpot", "s", "(last - first token) / (output tokens - 1)", ("time_per_output_token",),
        per_request=True,
    ),
    SloMetric(
        "itl", "s", "gap between consecutive tokens", ("inter_token_latency",), per_request=True
    ),
    SloMetric(
        "e2e", "s", "send to last token", ("e2el", "request_latency", "latency"), per_request=True
    ),
    SloMetric(
        "queue", "s", "time waiting in the server before first scheduled", ("queue_time",),
        per_request=True,
    ),
    SloMetric("output_tps", "tok/s", "output tokens of good requests per second", ("throughput",)),
    SloMetric("total_tps", "tok/s", "prompt and output tokens of good requests per second"),
    SloMetric("rps", "req/s", "completed requests per second", ("request_rate",)),
    SloMetric("goodput", "req/s", "requests per second that meet every latency clause"),
    SloMetric("error_rate", "share", "failed, truncated or empty requests of those sent",
              ("errors",)),
    SloMetric("attainment", "share", "share of requests that meet every latency clause"),
    SloMetric("cost_per_mtok", "$", "price per million output tokens; needs --price-per-hour"),
    SloMetric("accuracy", "share", "score of the quality check; needs --quality"),
)  # fmt: skip

METRICS: dict[str, SloMetric] = {metric.name: metric for metric in _TABLE}
BY_ANY_NAME: dict[str, SloMetric] = {
    name: metric for metric in _TABLE for name in (metric.name, *metric.aliases)
}

TIME_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
OTHER_UNITS: dict[Unit, dict[str, float]] = {
    "tok/s": {"tok/s": 1.0, "tokens/s": 1.0, "tps": 1.0},
    "req/s": {"req/s": 1.0, "requests/s": 1.0, "rps": 1.0},
    "share": {"%": 0.01},
    "$": {"$": 1.0, "usd": 1.0},
    "s": {},
}
