"""The embedded scraper and a real Prometheus beside it, both watching one scripted server."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from storage.sources import open_source
from storage.sources.prometheus import PrometheusSource
from storage.sources.scrape import ScrapeSource
from storage.sources.store import HORIZON_S
from tests.storage.conftest import wait_until
from tests.storage.sources.parity import (
    CLOCK,
    SCRIPT_S,
    WINDOW_S,
    Pair,
    exposition,
    on_time,
)
from tests.storage.sources.real_prometheus import prometheus_of
from tests.storage.sources.serving import serving


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: parity was not tested")
    start_s = time.monotonic()
    with (
        serving(lambda: exposition(time.monotonic() - start_s)) as target,
        prometheus_of(target.url, tmp_path_factory.mktemp("prometheus")) as url,
    ):
        wait_until(lambda: target.asked > 0, "the first scrape by Prometheus")
        start_s = time.monotonic()  # the script starts once both watch
        scraped = ScrapeSource(target.url, scrape_interval_s=1.0)
        asked = open_source(prometheus=url, scrape_interval_s=1.0, labels={"job": "engine"})
        time.sleep(SCRIPT_S)
        yield Pair(scraped, asked, target)
        scraped.close()
        asked.close()


@pytest.fixture
def steady(pair: Pair) -> Pair:
    """Both sources after a time in which both kept their pace: what they then tell must agree."""
    scraped, asked, covered_s = pair.scraped, pair.asked, WINDOW_S + 3
    assert isinstance(scraped, ScrapeSource)
    assert isinstance(asked, PrometheusSource)

    def kept_pace() -> bool:
        with scraped._lock:
            (own,) = scraped._store.find("vllm:done_total", {"finished_reason": "stop"})
            mine = list(zip(own.times_s, own.values, strict=True))
        ((_, theirs),) = asked.client.matrix(CLOCK, HORIZON_S, time.time())
        fresh = min(mine[-1][0], theirs[-1][0]) > time.time() - 1.5
        return fresh and on_time(mine, covered_s) and on_time(theirs, covered_s)

    wait_until(kept_pace, "eleven seconds in which both sources scraped on time", limit_s=120)
    return pair
