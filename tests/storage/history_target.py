"""A server whose pages the tests of the history scrape."""

from __future__ import annotations

import math
from collections.abc import Callable

from storage import open_database
from storage.history import History
from tests.storage.sources.virtual import START_S

HOUR_S = 3600.0
RESTART_S = START_S + 2.4 * HOUR_S + 7
"""In the middle of a minute, and of ten minutes; the counter outgrows its old value soon after."""

LE = {"0.1": 0.2, "0.5": 0.6, "1.0": 0.9, "+Inf": 1.0}


def page(at_s: float) -> str:
    """A server that serves more by the hour, and restarted once."""
    began_s = START_S - 60 if at_s < RESTART_S else RESTART_S
    served = (at_s - began_s) * (3 + math.sin(at_s / 4000) / (1 + at_s - began_s))
    waiting = 50.0 if at_s % 1800 < 10 else 2.0
    lines = [
        f"process_start_time_seconds {began_s}",
        f'vllm:done_total{{finished_reason="stop"}} {0.9 * served}',
        f'vllm:done_total{{finished_reason="abort"}} {0.1 * served}',
        f'vllm:num_requests_waiting{{engine="0"}} {waiting}',
        f"vllm:ttft_seconds_sum {0.4 * served}",
        f"vllm:ttft_seconds_count {served}",
        "python_gc_collections_total 5",
        *(f'vllm:ttft_seconds_bucket{{le="{le}"}} {served * share}' for le, share in LE.items()),
    ]
    return "\n".join(lines) + "\n"


def opened(url: str, target: str = "http://virtual/metrics") -> Callable[[], History]:
    return lambda: History(open_database(url), target)
